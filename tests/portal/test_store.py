"""What the portal reads through the connection: of a job's files as its master has left them, and when it cannot."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.hadoop.ports import free_ports
from tests.operators.statuses import application, status, worker
from tests.portal import stored
from tests.portal.conftest import As
from tests.runtime.history.events import leave_events, segment_of
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.records.staleness import ModelReport, ModelState, StaleRun
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal import job_views
from tony_provider.portal.api import PlainJson
from tony_provider.portal.job_views import CUT
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.inputs.lineage import Lineage
from tony_provider.watching.observation import Observation

ID, OTHER = "application_1700000000000_0001", "application_1700000000000_0002"
PATHS = [f"/jobs/{ID}/{each}" for each in ("history", "specification", "live", "logs", "logs/worker:0")]
STARTED = {"event": "STARTED", "labels": {"dag_id": "clicks"}, "loss": float("nan")}


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory, jobs: dict[str, int]) -> Path:
    """A staging directory with two jobs, of which Airflow's database has the summaries."""
    staging = tmp_path_factory.mktemp("tony")
    with pytest.MonkeyPatch.context() as patch:
        _connect(patch, staging)
        hook = TonyHook()
        for application_id, memory in ((ID, "1GiB"), (OTHER, "2GiB")):
            identity = hook.identity(dag_id="clicks", run_id=stored.run_id(0), task_id="kept")
            uri = hook.job(application_id, identity).directory
            _write(Path(uri.removeprefix("file://")), application_id, memory)
            about = stored.summary(0, application_id=application_id, application_dir=uri, task_id="kept")
            stored.add(jobs["clicks-0"], about)
    return staging


def _write(directory: Path, application_id: str, memory: str) -> None:
    """What its master has left of it."""
    for name in ("history", "logs"):
        (directory / name).mkdir(parents=True)
    ended = attrs.evolve(status("SUCCEEDED", tasks=[worker(0, "SUCCEEDED")]), application_id=application_id)
    (directory / "result.json").write_bytes(dump_json(ended))
    leave_events(directory, STARTED, b"{cut")
    job = {"framework": "pytorch", "tasks": {"worker": {"memory": memory, "command": "<b>"}}}
    (directory / "history" / "specification.json").write_text(json.dumps({"job": job, "given": {"queue": "ml"}}))
    (directory / "logs" / "worker-0.log").write_text("first\n" * 1000 + "last ☃\n")
    (directory / "logs" / "worker-0.attempt-2.log").write_text("second\n")


def _connect(patch: pytest.MonkeyPatch, staging: Path) -> None:
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(staging)}}
    patch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))


@pytest.fixture
def connected(staging: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    _connect(monkeypatch, staging)
    return staging


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    over = threading.Event()
    monkeypatch.setattr(job_views, "SECONDS", 0.2)
    monkeypatch.setattr(TonyJob, "labels", lambda *_: over.wait())
    yield
    over.set()


@pytest.mark.usefixtures("connected")
def test_a_history(client: As) -> None:
    found = client("alice").get(f"/tony/api/jobs/{ID}/history").json()
    assert found["specification"]["framework"] == "pytorch"
    assert (found["given"], found["overrides"]) == ({"queue": "ml"}, None)
    assert found["status"]["state"] == "SUCCEEDED"
    assert found["events"][0]["loss"] == "NaN"
    assert found["samples"] == {}
    assert [each["chart"] for each in found["metrics"] if each["name"] == "read_bytes"] == ["Disk read rate"]
    assert any("1 line" in each for each in found["missing"])
    assert found["event_files"] is False


def test_event_files_are_noticed(client: As, connected: Path) -> None:
    (directory,) = connected.rglob(f"applications/{OTHER}")
    (directory / "tensorboard" / "worker-0").mkdir(parents=True)
    assert client("alice").get(f"/tony/api/jobs/{OTHER}/history").json()["event_files"] is True


@pytest.mark.usefixtures("connected")
def test_a_history_without_knowledge_of_event_files(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TonyJob) -> object:
        raise RecordUnreadable("file:///owner.json", "not JSON", "the training has no owner")

    monkeypatch.setattr(TonyJob, "event_files", fail)
    found = client("alice").get(f"/tony/api/jobs/{ID}/history").json()
    assert found["event_files"] is False
    assert any(each.startswith("event files: cannot read file:///owner.json") for each in found["missing"])


@pytest.mark.usefixtures("connected")
def test_a_specification_is_read_alone(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TonyJob, "history")
    found = client("alice").get(f"/tony/api/jobs/{ID}/specification").json()
    assert found["specification"]["tasks"]["worker"]["memory"] == "1GiB"
    assert found["missing"] == []


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("path", [*PATHS[:-1], f"/compare?ids={ID},{OTHER}", f"/jobs/{ID}", "/jobs"])
def test_no_answer_becomes_json_on_the_loop_that_answers_everybody(
    client: As, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    on_loop: list[bool] = []
    render = PlainJson.render

    def watched(answer: PlainJson, content: Any) -> bytes:
        on_loop.append(asyncio._get_running_loop() is not None)
        return render(answer, content)

    monkeypatch.setattr(PlainJson, "render", watched)
    assert client("alice").get(f"/tony/api{path}").status_code == 200
    assert on_loop == [False]


@pytest.mark.usefixtures("connected")
def test_a_live_status(client: As) -> None:
    found = client("alice").get(f"/tony/api/jobs/{ID}/live").json()
    assert (found["application_state"], found["status"]["state"]) == (None, "SUCCEEDED")
    assert (found["verdict"], found["reason"]) == ("SUCCEEDED", "")
    assert [each["title"] for each in found["metrics"] if each["in_status"]] == ["Memory", "CPU"]


@pytest.mark.usefixtures("connected")
def test_a_job_that_the_cluster_has_killed(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its master could not write how it ended: its last word is that it runs."""
    killed = application("KILLED", diagnostics="killed by alice")
    seen = Observation(killed, attrs.evolve(status("RUNNING"), application_id=ID))
    monkeypatch.setattr(job_views, "observe", lambda *_, **__: seen)
    found = client("alice").get(f"/tony/api/jobs/{ID}/live").json()
    assert (found["verdict"], found["reason"], found["status"]["state"]) == ("KILLED", "killed by alice", "RUNNING")


@pytest.mark.usefixtures("connected")
def test_logs(client: As) -> None:
    logs = client("alice").get(f"/tony/api/jobs/{ID}/logs").json()["logs"]
    assert sorted((each["task"], each["attempt"], each["file"]) for each in logs) == [
        ("worker:0", 1, "worker-0.log"),
        ("worker:0", 2, "worker-0.attempt-2.log"),
    ]


def test_the_end_of_a_log_begins_with_a_line(client: As, connected: Path) -> None:
    (second,) = connected.rglob(f"{ID}/logs/worker-0.attempt-2.log")
    second.unlink()
    try:
        answer = client("alice").get(f"/tony/api/jobs/{ID}/logs/worker:0?tail=20")
    finally:
        second.write_text("second\n")
    assert answer.text == CUT + "first\nlast ☃\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("task", ["worker:9", "..%2f..%2fresult.json", "worker", "%00:0"])
def test_a_log_that_is_not_there(client: As, task: str) -> None:
    assert client("alice").get(f"/tony/api/jobs/{ID}/logs/{task}").status_code == 404


@pytest.mark.usefixtures("connected")
def test_a_comparison_of_specifications(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TonyJob, "history")  # that of eight large jobs would take too long
    found = client("alice").get(f"/tony/api/compare?ids={ID},{OTHER}").json()
    assert (found["differences_of"], found["reason"]) == ("specifications", None)
    assert found["differences"] == {"tasks.worker.memory": ["1GiB", "2GiB"]}


def test_a_specification_that_is_too_large_to_be_compared(client: As, connected: Path) -> None:
    (file,) = connected.rglob(f"{ID}/history/specification.json")
    before = file.read_text()
    file.write_text(json.dumps({"job": {f"k{at}": {"x": at} for at in range(20_000)}, "given": {}}))
    try:
        found = client("alice").get(f"/tony/api/compare?ids={ID},{OTHER}").json()
    finally:
        file.write_text(before)
    assert found["differences_of"] == "fingerprints"
    assert found["reason"] == f"{ID}: the job's specification has more than 10000 entries"


def test_of_very_many_events_the_newest_are_told(client: As, connected: Path) -> None:
    (file,) = connected.rglob(f"{ID}/history/events-*")
    before = file.read_bytes()
    file.write_bytes(segment_of(STARTED, *[{"event": "x"}] * 10_001, {"event": "last"}))
    try:
        found = client("alice").get(f"/tony/api/jobs/{ID}/history").json()
    finally:
        file.write_bytes(before)
    assert (len(found["events"]), found["events"][-1]) == (10_000, {"event": "last"})
    assert "events: 3 older events are not shown" in found["missing"]


@pytest.mark.usefixtures("connected", "silent")
def test_histories_that_are_not_read_to_their_end_leave_room_for_all_else(client: As) -> None:
    for _ in range(5):
        assert client("alice").get(f"/tony/api/jobs/{ID}/history").status_code == 503
    assert len(job_views._large._threads) <= 4


@pytest.mark.usefixtures("connected", "silent")
@pytest.mark.parametrize("path", PATHS)
def test_a_store_that_says_nothing(client: As, path: str) -> None:
    answer = client("alice").get(f"/tony/api{path}")
    assert answer.status_code == 503
    assert "has not answered within" in answer.json()["reason"]


@pytest.mark.usefixtures("staging")
def test_a_store_that_refuses_connections_is_told_at_once(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as one that is silent: the hook would try again for longer than a reader waits."""
    port = free_ports(1)[0]
    extra = {"webhdfs": f"http://127.0.0.1:{port}", "staging_dir": "hdfs://away.example.com:8020/tony"}
    connection = {"conn_type": "tony", "host": "127.0.0.1", "port": port, "login": "alice", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    answer = client("alice").get(f"/tony/api/jobs/{ID}/history")
    assert answer.status_code == 503
    assert f"no NameNode accepts connections: nothing listens on port {port} of 127.0.0.1" in answer.json()["reason"]


@pytest.mark.usefixtures("connected")
def test_an_error_that_nobody_has_foreseen_shows_nothing_of_itself(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("password=secret")

    monkeypatch.setattr(TonyJob, "history", fail)
    answer = client("alice").get(f"/tony/api/jobs/{ID}/history")
    assert answer.status_code == 503
    assert "ValueError" in answer.json()["reason"]
    assert "secret" not in answer.text


def test_another_staging_directory_than_when_it_ran(
    client: As, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _connect(monkeypatch, tmp_path)
    answer = client("alice").get(f"/tony/api/jobs/{ID}/history")
    assert answer.status_code == 503
    assert "staging directory of the connection 'tony_default'" in answer.json()["reason"]


def test_a_summary_that_names_the_files_of_another_dags_job_does_not_open_them(
    client: As, connected: Path, jobs: dict[str, int]
) -> None:
    """Any task may write any summary."""
    (directory,) = connected.rglob(ID)
    about = stored.summary(0, "digits", application_id=ID, application_dir=directory.as_uri(), task_id="sly")
    stored.add(jobs["digits-0"], about)
    for path in PATHS:
        answer = client("bob").get(f"/tony/api{path}")
        assert answer.status_code == 503
        assert "is a job of another DAG" in answer.json()["reason"]


def test_a_summary_that_names_another_dags_application_in_its_own_directory_does_not_ask_it(
    client: As, connected: Path, jobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in that directory: only the cluster knows whose the application is."""
    theirs = "application_1700000000000_0003"
    with TonyHook() as hook:
        identity = hook.identity(dag_id="digits", run_id=stored.run_id(0), task_id="slier")
        uri = hook.job(theirs, identity).directory
    about = stored.summary(0, "digits", application_id=theirs, application_dir=uri, task_id="slier", verdict=None)
    stored.add(jobs["digits-0"], about)
    path = f"/tony/api/jobs/{theirs}/live"
    monkeypatch.setattr(TonyHook, "application", lambda *_: application(tags=["somebody-elses"]))
    answer = client("bob").get(path)
    assert answer.status_code == 503
    assert "belongs to this DAG: the job has written no files yet" in answer.json()["reason"]
    monkeypatch.setattr(TonyHook, "application", lambda *_: application(tags=[identity.tag]))
    assert client("bob").get(path).json()["application_state"] == "RUNNING"


def test_a_summary_that_names_another_dags_training_and_its_application_does_not_ask_it(
    client: As, connected: Path, jobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job that has written nothing yet the tag is all that is known, and the summary is what names the tag."""
    theirs = "application_1700000000000_0004"
    with TonyHook() as hook:
        identity = hook.identity(dag_id="clicks", run_id=stored.run_id(0), task_id="waits")
        uri = hook.job(theirs, identity).directory
    about = stored.summary(0, "digits", application_id=theirs, application_dir=uri, task_id="slyest", verdict=None)
    stored.add(jobs["digits-0"], about)
    monkeypatch.setattr(TonyHook, "application", lambda *_: application(tags=[identity.tag]))
    for path in ("live", "history", "logs"):
        answer = client("bob").get(f"/tony/api/jobs/{theirs}/{path}")
        assert answer.status_code == 503
        assert "belongs to this DAG: the job has written no files yet" in answer.json()["reason"]


def test_no_answer_holds_what_a_terminal_obeys_or_nothing_shows(client: As, connected: Path) -> None:
    """What people read on a page they copy into terminals, too; and a name may turn the direction of its line."""
    (file,) = connected.rglob(f"{ID}/history/events-*")
    before = file.read_bytes()
    odd = {"event": "a\x1b]0;owned\x07z", "n\u202eame": "x\u200b\x07y", "task": "first\nsecond\tthird … é ☃"}
    labels = {"labels": {"dag_id": "clicks"}}
    file.write_bytes(segment_of({**odd, **labels}))
    try:
        found = client("alice").get(f"/tony/api/jobs/{ID}/history").json()["events"]
    finally:
        file.write_bytes(before)
    assert found == [{"event": "az", "name": "xy", "task": "first\nsecond\tthird … é ☃", **labels}]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((f"a{chr(code)}z", "az") for code in (0, 8, 12, 13, 0x1B, 0x7F, 0x85, 0x9B, 0xAD, 0x61C, 0x180E)),
        *((f"a{chr(code)}z", "az") for code in (0x200B, 0x200F, 0x2028, 0x202E, 0x2060, 0xFEFF, 0xFFF9, 0xE0041)),
        ("a\ud800z", "a?z"),
        *((text, text) for text in ("\\u202e", "\\r", "a\n\tz", "…", "😀", "é")),
    ],
)
def test_every_character_that_is_not_shown_is_noticed(text: str, shown: str) -> None:
    assert json.loads(bytes(PlainJson({text: [text, {"x": text}]}).body)) == {shown: [shown, {"x": shown}]}


@pytest.mark.usefixtures("connected")
def test_stale_runs_that_airflow_still_has_with_a_stand_in_for_the_comparison(
    client: As, jobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(run_id: str) -> ModelReport:
        labels = {"dag_id": "clicks", "run_id": run_id}
        lineage = Lineage(application_id=ID, training=run_id, labels=labels, finished_ms=1, chain_dir="")
        run = StaleRun("clicks", run_id)
        return ModelReport(training=run_id, state=ModelState.STALE, lineage=lineage, run=run)

    reports = [report(stored.run_id(0)), report("deleted")]
    monkeypatch.setattr(TonyHook, "stale_models", lambda *_, **__: reports)
    gone = stored.summary(0, application_id="application_1700000000000_0003", tony_conn_id="gone")
    stored.add(jobs["clicks-0"], gone)
    # The files of the newest jobs are deleted.
    found = client("alice").get("/tony/api/dags/clicks/stale").json()
    assert found["runs"] == [{"run_id": stored.run_id(0), "waits_for": 0, "active": True}]
    assert found["states"] == {"stale": 2}
    assert any("gone" in each for each in found["missing"])
    assert client("bob").get("/tony/api/dags/clicks/stale").status_code == 404

"""Who else may look at a job and interfere with it, on a real cluster with Kerberos that heeds access lists."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.hadoop.client import HttpError
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.cluster.errors import ClusterAuthError
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.base import is_temporary

VIEWER, MODIFIER = "bob", "airflow"
NAMES = {"view": {"users": [VIEWER]}, "modify": {"users": [MODIFIER]}}
ORDER = json.dumps({"reason": "not from here"}).encode()
TRAIN = """
echo "first words"
mkdir -p "$TONY_MODEL_DIR" && echo weights > "$TONY_MODEL_DIR/model.bin"
until test -e "$GO"; do sleep 0.1; done
"""


@pytest.fixture
def shared(secure: YarnPlace) -> YarnPlace:
    """Alice's staging directory is where others may get to: homes of this cluster are closed."""
    secure.extra["staging_dir"] = f"{secure.cluster.fs_default}/tmp/acls-{uuid.uuid4().hex}"
    return secure


def submit(place: YarnPlace, go: Path, **fields: object) -> Job:
    tasks = {"worker": {"memory": "128MiB", "command": TRAIN}}
    return place.submit({"name": "digits", "env": {"GO": str(go)}, "tasks": tasks, **fields})


def asking(place: YarnPlace, user: str, job: Job, path: str) -> Callable[[], bytes]:
    url = f"{place.cluster.rm_webapp[0]}/proxy/{job.id}/{path}"
    return partial(place.cluster.client(user).request, "GET", url, query={"proxyapproved": "true"})


def order(place: YarnPlace, user: str, job: Job, kind: str = "application/json", **headers: str) -> str:
    """What comes of an order through YARN's proxy: the error's words, or nothing."""
    url = f"{place.cluster.rm_webapp[0]}/proxy/{job.id}/control/checkpoint"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        place.cluster.client(user).request("PUT", url, ORDER, kind, query={"proxyapproved": "true"}, headers=named)
    except HttpError as error:
        return str(error)
    return ""


def on_store(place: YarnPlace, user: str, uri: str, op: str, **query: str) -> bytes:
    """Raises HttpError."""
    url = f"{place.cluster.webhdfs[0]}/webhdfs/v1{urlsplit(uri).path}"
    return place.cluster.client(user).request("GET", url, query={"op": op, **query})


def read_if_there(place: YarnPlace, user: str, uri: str) -> None:
    """Small files of the history are put together while a job runs. Records become ordinary files at its end."""
    try:
        record = b"user.tony.content" in on_store(place, user, uri, "GETXATTRS", encoding="base64")
        assert record or on_store(place, user, uri, "OPEN")
    except HttpError as error:
        assert "FileNotFoundException" in str(error)  # noqa: PT017


def names_below(place: YarnPlace, user: str, uri: str) -> list[str]:
    found = json.loads(on_store(place, user, uri, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
    return [str(each["pathSuffix"]) for each in found]


def killed(place: YarnPlace, user: str, job: Job) -> str:
    """As YARN's own REST interface says it."""
    try:
        place.cluster.kill_application(job.id, user)
    except HttpError as error:
        return str(error)
    return ""


def assert_reads_records_and_nothing_else(
    place: YarnPlace, user: str, job: Job, files: Sequence[str] = (), closed: Sequence[str] = ()
) -> None:
    for name in ("history", "logs"):
        for each in names_below(place, user, f"{job.directory}/{name}"):
            if not is_temporary(each):  # nobody but the owner reads it before it has its name
                read_if_there(place, user, f"{job.directory}/{name}/{each}")
    for name in ("status.json", *files):
        until(partial(on_store, place, user, f"{job.directory}/{name}", "OPEN"), job.describe)  # empty at first
    root = job.hook.layout.root
    places = [root, f"{root}/cache", f"{root}/jobs", job.directory, *(f"{job.directory}/{name}" for name in closed)]
    places += [chain.uri for chain in [job.handle.owned_chain()] if chain is not None]
    for uri in places:
        with pytest.raises(HttpError, match="AccessControlException"):
            names_below(place, user, uri)
    with pytest.raises(HttpError, match="AccessControlException"):
        on_store(place, user, f"{job.directory}/master.json", "OPEN")


def assert_sees_nothing(place: YarnPlace, user: str, job: Job) -> None:
    for path in ("", "status", "logs/worker-0", "output/worker-0", "metrics"):
        with pytest.raises(HttpError, match=f"{user} may not view this application of alice"):
            asking(place, user, job, path)()
    assert "may not modify" in order(place, user, job)
    assert "Unauthorized attempt to kill" in killed(place, user, job)
    assert_sees_nothing_on_the_store(place, user, job)


def assert_sees_nothing_on_the_store(place: YarnPlace, user: str, job: Job) -> None:
    for name in ("history", "logs"):
        with pytest.raises(HttpError, match="AccessControlException"):
            names_below(place, user, f"{job.directory}/{name}")
    for name in ("status.json", "history/specification.json", "model/model.bin"):
        with pytest.raises(HttpError, match="AccessControlException"):
            on_store(place, user, f"{job.directory}/{name}", "OPEN")


def test_who_is_named_may_look_or_stop_and_nobody_else(
    shared: YarnPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    job, other = submit(shared, go, acls=NAMES), submit(shared, go)
    job.until(JobState.RUNNING)
    other.until(JobState.RUNNING)

    for user in (VIEWER, MODIFIER):
        for path, words in (("", "worker:0"), ("status", "digits"), ("logs/worker-0", "first words")):
            look = asking(shared, user, job, path)
            assert words in until(look, job.describe).decode()
        assert_reads_records_and_nothing_else(shared, user, job, closed=["launch"])
        assert_sees_nothing(shared, user, other)  # the same owner's, in the same staging directory

    assert f"{VIEWER} may not modify" in order(shared, VIEWER, job)
    assert "Unauthorized attempt to kill" in killed(shared, VIEWER, job)
    with pytest.raises(ClusterAuthError, match=f"{VIEWER} may not modify"):
        become(shared, monkeypatch, VIEWER).control(job.id, "stop", {"reason": "not his"})

    assert order(shared, MODIFIER, job) == ""
    become(shared, monkeypatch, MODIFIER).control(job.id, "stop", {"reason": "enough, says the modifier"})
    become(shared, monkeypatch, "alice")
    assert "enough, says the modifier" in job.end().diagnostics
    assert "first words" in job.log("worker:0")
    assert_reads_records_and_nothing_else(shared, VIEWER, job, ["result.json"])
    go.touch()
    other.succeeded()
    assert_sees_nothing_on_the_store(shared, VIEWER, other)


@pytest.mark.long
def test_scripts_of_other_pages_of_the_resource_manager_give_no_orders(shared: YarnPlace, tmp_path: Path) -> None:
    """As a browser sends a script's order from another application's page, with the owner's ticket, by YARN's proxy."""
    go = tmp_path / "go"
    job = submit(shared, go, acls=NAMES)
    job.until(JobState.RUNNING)
    own = shared.cluster.rm_webapp[0]
    chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
    language = {"Accept_Language": "en-US,en;q=0.9", "User_Agent": chrome}
    for headers in ({"Origin": own, **language}, {"Origin": "null"}, language, {"User_Agent": chrome}):
        assert "orders from a browser are rejected" in order(shared, "alice", job, **headers)
    # What forms and simple requests of any site can send: the proxy keeps a form's body to itself.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert "Content-Type: application/json" in order(shared, "alice", job, kind)
    page = f"{own}/proxy/{job.id}/"
    authority = str(shared.cluster.layout.ca_file)
    command = ["curl", "--silent", "--include", "--negotiate", "--user", ":", "--cacert", authority, "--noproxy", "*"]
    environment = shared.cluster.layout.kerberos_environment("alice")
    answer = subprocess.run(
        [*command, page], env=environment, capture_output=True, check=True, timeout=60
    ).stdout.decode()
    assert "frame-ancestors 'none'" in answer
    assert "Referrer-Policy: no-referrer" in answer
    assert order(shared, "alice", job) == ""
    go.touch()
    job.succeeded()
    # Its model is there now, and its owner's alone.
    assert_reads_records_and_nothing_else(shared, VIEWER, job, ["result.json"], ["model"])


def become(place: YarnPlace, monkeypatch: pytest.MonkeyPatch, user: str) -> TonyHook:
    """A hook of this user's."""
    for name, value in place.cluster.layout.kerberos_environment(user).items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    return place.hook()

"""What tasks make of a result that its job has forged, as a program can with the rights of the job's user.

The job has ended, and its task in Airflow has not read the result yet: as after the death of a worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.sdk import DAG

from tests.airflow_dags import Run, run
from tests.operators.jobs import DAG_ID, DEADLINE, job, train
from tests.operators.trainings import DATES, RUN_ID, Telling
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.limits import RESERVED_KEYS
from tony_provider.runtime.storage.base import read_bytes, walk, write_atomically
from tony_provider.runtime.storage.uris import join

OBJECT = {"__classname__": "airflow.sdk.definitions.asset.Asset", "__version__": 1, "__data__": {"name": "mine"}}
SPEC = "echo 1 > $TONY_MODEL_DIR/weights; echo '[1, {\"a\": 2}]' > $TONY_RESULT_FILE"


@attrs.frozen
class Finished:
    """A training whose job has succeeded."""

    hook: TonyHook
    directory: str  # the application's
    spec: dict[str, Any]

    def forge(self, name: str = "result.json", **changes: Any) -> None:
        """Write what a job would, over what its master has written."""
        uri = join(self.directory, name)
        written = changes.get("all") or {**json.loads(read_bytes(self.hook.storage(), uri)), **changes}
        write_atomically(self.hook.storage(), uri, json.dumps(written).encode())

    def read(self, **more: Any) -> Run:
        """Run the task, which finds that result, and a next one that takes the model along."""
        with DAG(DAG_ID, schedule=None) as dag:
            first = Telling(task_id="train", job=self.spec, poll_interval=0.5, **more)
            model = "{{ ti.xcom_pull('train')['model_dir'] }}::model"
            first >> Telling(task_id="score", job=job("ls model", files=[model]), poll_interval=0.5)
        return run(dag, **DATES)

    @property
    def staged(self) -> set[str]:
        """The names of all files in the staging directory's cache."""
        cache = self.hook.layout.cache_dir
        storage = self.hook.storage()
        return {file.name for file in walk(storage, cache)} if storage.exists(cache) else set()


@pytest.fixture
def finished(local: TonyHook) -> Callable[..., Finished]:
    def finish(command: str = SPEC, **more: Any) -> Finished:
        spec = job(command, **more)
        identity = local.identity(dag_id=DAG_ID, run_id=RUN_ID, task_id="train")
        name = local.submit(SubmissionRequest(parse_job(spec), identity)).application_id
        until(lambda: bool((seen := local.application(name)) and seen.is_final), "the end of the job", DEADLINE)
        return Finished(local, local.job(name, identity).directory, spec)

    return finish


def test_a_result_that_nobody_has_forged_goes_to_the_next_task(finished: Callable[..., Finished]) -> None:
    done = finished().read()
    assert done.errors == {}
    assert done.results["train"]["returned"] == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("model_dir", "{}"),
        ("model_dir", "file://{}"),
        ("model_dir", "{application}/../../../../..{}"),
        ("export", "file://{}"),
        ("checkpoint", "{}"),
        ("inputs", "file://{}"),
    ],
)
def test_no_place_of_the_worker_is_taken_for_the_job_s(
    finished: Callable[..., Finished], tmp_path: Path, key: str, place: str
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "worker.keytab").write_text("secret")
    ended = finished()
    uri = place.format(keys, application=ended.directory)
    forms: dict[str, Any] = {
        "model_dir": uri,
        "export": {"step": 1, "uri": uri},
        "checkpoint": {"step": 1, "uri": uri},
        "inputs": [{"name": "clicks", "deal": "queue", "shards": 1, "size": 1, "listing": uri}],
    }
    ended.forge(**{key: forms[key]})
    done = ended.read()
    error = str(done.errors["train"])
    assert error.startswith(f"cannot read {ended.directory}/result.json: {key}")
    assert f" does not lie below {ended.directory.partition('/applications/')[0]}"[:60] in error  # long ones are cut
    assert done.results["score"] is None
    assert (done.results["train"], str(keys) in str(done.results)) == (None, False)
    assert not [name for name in ended.staged if "keytab" in name]


@pytest.mark.parametrize("deferrable", [False, True])
def test_an_output_lies_where_the_task_s_job_says(
    finished: Callable[..., Finished], tmp_path: Path, caplog: pytest.LogCaptureFixture, deferrable: bool
) -> None:
    outputs = {"scores": {"path": f"file://{tmp_path}/scores"}}
    ended = finished(SPEC + "; echo 1 > $TONY_OUTPUT_SCORES/part", outputs=outputs)
    forged = {"name": "scores", "uri": "file:///etc", "files": 1, "bytes": 2}
    ended.forge(outputs=[forged, {**forged, "name": "keys"}])
    done = ended.read(deferrable=deferrable)
    assert done.results["train"]["outputs"] == {}
    for name, instead in (("scores", f"file://{tmp_path}/scores"), ("keys", "no such output")):
        said = f"The output {name!r} is left out of the result: the application reports it at 'file:///etc', but the "
        assert f"{said}job specifies {instead}" in caplog.text


@pytest.mark.parametrize("returned", [OBJECT, {"deep": [{"__type": "set", "__var": [1]}]}])
def test_what_airflow_would_make_an_object_of_is_not_taken_from_the_store(
    finished: Callable[..., Finished], returned: dict[str, Any]
) -> None:
    ended = finished()
    ended.forge("return_value.json", all=returned)
    done = ended.read()
    error = str(done.errors["train"])
    assert error.startswith(f"cannot read {ended.directory}/return_value.json: it contains '")
    assert "is a reserved key of Airflow's serialization" in error
    assert done.results["train"] is None


@pytest.mark.parametrize("key", ["__type", "__classname__", "__id__"])
def test_a_program_cannot_return_it(local: TonyHook, key: str) -> None:
    """Seen: the next task got an object with data of the job's choice, or this one failed without a word on why."""
    returned = json.dumps({"a": [{**OBJECT, key: "dict"} if key in OBJECT else {key: "dict", "__var": 1}]})
    done = train(job(f"echo '{returned}' > $TONY_RESULT_FILE", restart={"budget": 0}))
    assert "TONY_RESULT_FILE contains 'a[0].__" in str(done.errors["train"])
    assert done.results["train"] is None


@pytest.mark.parametrize("deferrable", [False, True])
def test_metrics_have_no_names_that_airflow_would_make_an_object_of(
    local: TonyHook, finished: Callable[..., Finished], deferrable: bool
) -> None:
    """Seen: `train.output["metrics"]` was whatever `__var` held; a name `__classname__` failed the task."""
    report = json.dumps({"step": 3, "loss": 0.5, **dict.fromkeys(RESERVED_KEYS, 1.0)})
    done = train(job(f"echo '{report}' > $TONY_METRICS_FILE"), deferrable=deferrable)
    assert done.errors == {}
    assert done.results["train"]["metrics"] == {"loss": 0.5}
    ended = finished(f"echo '{report}' > $TONY_METRICS_FILE")
    progress = {"step": 3, "metrics": {"__type": 1.0, "__var": 2.0}}
    ended.forge(tasks=[{"type": "worker", "index": 0, "state": "SUCCEEDED", "progress": progress}], leader="worker:0")
    assert "a metric's name is a reserved key of Airflow's serialization" in str(ended.read().errors["train"])


def test_by_default_a_task_takes_files_of_its_bundle_only(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    del connection["extra"]["file_roots"]
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    (tmp_path / "airflow.cfg").write_text("fernet_key = secret")
    assert train(job("sh greeting.sh", files=["greeting.sh"])).errors == {}
    done = train(job("true", files=[f"{tmp_path}/airflow.cfg"]))
    error = str(done.errors["train"])
    assert f"files[0]: {tmp_path}/airflow.cfg lies outside the directories whose files this job may use (" in error
    assert "have the administrator of the connection 'tony_default' add its directory to `file_roots`" in error

"""A job that succeeds: where it ran, what the cluster says of it, what it leaves and what not."""

from __future__ import annotations

from typing import Any

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import Place, YarnPlace
from tests.waiting import settled, until
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState, TaskState

# Each reports progress, waits until both have, and says who it is; rank 0 leaves a model.
COMMAND = """
echo '{"step": 5, "total_steps": 10, "loss": 0.5}' >> $TONY_METRICS_FILE
test $TONY_RANK != 0 || echo weights > $TONY_MODEL_DIR/model.txt
echo "I am $TONY_TASK_TYPE $TONY_TASK_INDEX of $TONY_WORLD_SIZE"
echo "and this is my stderr" >&2
until test -e "$GO"; do sleep 0.1; done
echo '{"step": 10, "total_steps": 10, "loss": 0.25}' >> $TONY_METRICS_FILE
"""


def two_workers(go: str, memory: str) -> dict[str, Any]:
    return {
        "name": "two workers",
        "env": {"GO": go},
        "tasks": {"worker": {"instances": 2, "memory": memory, "command": COMMAND}},
    }


def test_it_trains_and_leaves_its_results_and_nothing_else(place: Place, tmp_path: Any) -> None:
    go = tmp_path / "go"
    # On YARN more than half of a node each: the two must be on different ones.
    job = place.submit(two_workers(str(go), "2200MiB"))
    job.until(JobState.RUNNING)
    until(lambda: job.status().progress >= 0.5, job.describe)
    if isinstance(place, YarnPlace):
        until(lambda: place.report(job.id)["progress"] >= 50, job.describe)
    programs = {process.program for process in job.processes()}
    go.touch()

    status = job.succeeded()

    assert not [program for program in programs if "java" in program]
    assert {task.state for task in status.tasks} == {TaskState.SUCCEEDED}
    assert len({task.node for task in status.tasks}) == place.nodes
    assert (status.step, status.total_steps, status.metrics) == (10, 10, {"loss": 0.25})
    assert status.progress == 1.0
    assert status.model_dir == f"{job.directory}/model"
    assert job.read("model/model.txt") == "weights\n"
    for index in (0, 1):
        assert f"I am worker {index} of 2" in job.log(f"worker:{index}")
        assert "and this is my stderr" in job.log(f"worker:{index}")
    assert settled(job.processes) == []  # the master replaces its last records by ordinary files
    history = [name for name in job.files() if name.startswith("history/")]
    assert {name.partition("-")[0] for name in history} == {
        "history/events",
        "history/series",
        "history/specification.json",
    }
    logs = [name for name in job.files() if name.startswith("logs/")]
    # Of the logs that the master received; on a slow machine, executors store others themselves.
    assert any(name.endswith(contract.BUNDLE_ENDING) for name in logs)
    assert [name for name in job.files() if name not in (*history, *logs)] == [
        "master.json",
        "model/model.txt",
        "result.json",
        "status.json",
    ]
    assert_nothing_left(place, job)


def test_the_cluster_tells_the_same_as_the_job(yarn: YarnPlace) -> None:
    job = yarn.run({"name": "told", "queue": "ml", "tags": ["Spring"], "tasks": {"worker": _quick("true")}})

    report = yarn.report(job.id)

    assert (report["state"], report["finalStatus"], report["applicationType"]) == ("FINISHED", "SUCCEEDED", "TONY")
    assert (report["user"], report["name"], report["queue"].rpartition(".")[2]) == ("alice", "told", "ml")
    assert set(report["applicationTags"].split(",")) == {job.identity.tag, "spring"}
    assert report["progress"] == 100
    assert job.hook.find(job.identity) == []


def _quick(command: str) -> dict[str, Any]:
    return {"memory": "128MiB", "command": command}

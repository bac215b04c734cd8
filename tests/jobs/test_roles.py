"""A job with every role that TensorFlow knows: who finds whom, and whose end is the job's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import Place
from tony_provider.runtime.protocol.status import JobState, TaskState

SAY = 'echo "$TF_CONFIG"; '
FOR_EVER = SAY + "exec sleep 1000"


def roles(**commands: str) -> dict[str, Any]:
    """A chief, two workers, two parameter servers, an evaluator, a side-car; but for the chief they go on for ever."""
    instances = {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1, "tensorboard": 1}
    return {
        "framework": "tensorflow",
        "restart": {"budget": 0},
        "timeouts": {"grace": "2s", "evaluator": "1s"},
        "tasks": {
            name: {"instances": number, "memory": "128MiB", "command": commands.get(name, FOR_EVER)}
            for name, number in instances.items()
        },
    }


def test_a_parameter_server_job_ends_with_its_chief(place: Place) -> None:
    chief = SAY + 'echo "$TONY_CHIEF_HOSTS $TONY_PS_HOSTS $TONY_WORKER_HOSTS $CUDA_VISIBLE_DEVICES"; sleep 3'
    job = place.submit(roles(chief=chief, tensorboard="echo 'no more disk' >&2; exit 5"))

    status = job.succeeded()

    states = {task.name: task.state for task in status.tasks}
    assert states == {
        "chief:0": TaskState.SUCCEEDED,
        **dict.fromkeys(["worker:0", "worker:1", "ps:0", "ps:1", "evaluator:0"], TaskState.STOPPED),
        "tensorboard:0": TaskState.FAILED,
    }
    assert [warning for warning in status.warnings if "tensorboard:0" in warning and "exit code 5" in warning]
    config = job.said("chief:0")
    assert config["task"] == {"type": "chief", "index": 0}
    hosts = config["cluster"]
    assert {name: len(addresses) for name, addresses in hosts.items()} == {"chief": 1, "worker": 2, "ps": 2}
    for name in ("worker:0", "worker:1", "ps:0", "ps:1", "evaluator:0"):
        task_type, _, index = name.partition(":")
        assert job.said(name) == {"cluster": hosts, "task": {"type": task_type, "index": int(index)}}
    assert f"{','.join(hosts['chief'])} {','.join(hosts['ps'])} {','.join(hosts['worker'])} -1" in job.log("chief:0")
    assert_nothing_left(place, job)


@pytest.mark.parametrize(
    ("task", "command", "words"),
    [
        ("ps", "sleep 1", "ended with exit code 0, and chief:0 had not succeeded"),
        pytest.param("evaluator", "sleep 1; exit 4", "ended with exit code 4", marks=pytest.mark.long),
        pytest.param("worker", "sleep 1; exit 6", "ended with exit code 6", marks=pytest.mark.long),
    ],
)
def test_the_end_of_a_task_that_others_depend_on_is_the_jobs_end(
    local: Place, task: str, command: str, words: str
) -> None:
    job = local.run(roles(**{task: command}))

    diagnostics = job.failed()
    assert diagnostics.startswith(f"{task}:")
    assert words in diagnostics
    assert job.status().state is JobState.FAILED
    assert_nothing_left(local, job)

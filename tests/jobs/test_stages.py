"""Jobs whose task types begin one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place
from tony_provider.runtime.protocol.status import FailureKind, TaskState


def test_prepare_train_export(place: Place, open_directory: Path) -> None:
    said = f"echo $TONY_TASK_TYPE:$TONY_TASK_INDEX >> {open_directory}/order"
    spec = {
        "framework": "generic",
        "tasks": {
            "prepare": {"memory": "128MiB", "command": f"{said}; test -z $TONY_RANK"},
            "worker": {
                "instances": 2,
                "memory": "128MiB",
                "command": f"{said}; test $TONY_WORLD_SIZE = 2",
            },
            "export": {"role": "once", "after": {"worker": "succeeded"}, "memory": "128MiB", "command": said},
        },
    }
    job = place.submit(spec)

    status = job.succeeded()

    assert {task.state for task in status.tasks} == {TaskState.SUCCEEDED}
    first, *workers, last = (open_directory / "order").read_text().splitlines()
    assert (first, sorted(workers), last) == ("prepare:0", ["worker:0", "worker:1"], "export:0")
    over = [event.get("task") for event in job.events() if event["event"] in ("over", "stage")]
    assert over[0] == "prepare:0" or over[:2] == [None, "prepare:0"]
    assert_nothing_left(place, job)


def test_stages_take_turns_where_there_is_room_for_one(local: LocalPlace) -> None:
    local.extra.update(local_vcores=2, local_memory=512)
    tasks = {
        "prepare": {"memory": "400MiB", "command": "true"},
        "worker": {"instances": 2, "memory": "256MiB", "command": "true"},
        "export": {"role": "once", "after": {"worker": "succeeded"}, "memory": "512MiB", "command": "true"},
    }
    job = local.submit({"framework": "generic", "tasks": tasks})
    assert {task.state for task in job.succeeded().tasks} == {TaskState.SUCCEEDED}


@pytest.mark.parametrize(
    "ready",
    [
        pytest.param({"port": 0}, id="port"),
        pytest.param({"file": "up"}, id="file", marks=pytest.mark.long),
        pytest.param(
            {"command": 'test -e up && test "$TONY_TASK_TYPE" = service'}, id="command", marks=pytest.mark.long
        ),
    ],
)
def test_a_service_is_ready_before_those_that_use_it(local: LocalPlace, ready: dict[str, Any]) -> None:
    """Which takes its time."""
    serve = "sleep 2; touch up; exec python3 -m http.server $TONY_PORT"
    spec = {
        "restart": {"budget": 0},
        "tasks": {
            "service": {"role": "sidecar", "command": serve, "ready": ready},
            "worker": {"after": {"service": "ready"}, "command": "test $TONY_WORLD_SIZE = 1"},
        },
    }
    job = local.submit(spec)

    status = job.succeeded()

    events = [(event["event"], event.get("task")) for event in job.events()]
    assert events.index(("started", "service:0")) < events.index(("ready", "service:0"))
    assert events.index(("ready", "service:0")) < events.index(("allocated", "worker:0"))
    assert status.restarts == 0
    assert_nothing_left(local, job)


@pytest.mark.long
def test_who_waits_too_long_says_for_whom(local: LocalPlace) -> None:
    spec = {
        "framework": "generic",
        "timeouts": {"dependency": "2s", "grace": "1s"},
        "tasks": {"prepare": {"command": "sleep 600"}, "worker": {"command": "true"}},
    }
    job = local.submit(spec)

    assert "dependencies not met within 2 s (timeouts.dependency): worker waits for prepare to succeed" in job.failed()
    failure = job.status().failure
    assert failure is not None
    assert failure.kind is FailureKind.DEPENDENCY_TIMEOUT
    assert_nothing_left(local, job)

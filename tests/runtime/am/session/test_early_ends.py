"""A parameter server that ends with exit code 0: a fault of the program, unless the job is at its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import World, job, task_type
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session.session_events import FromTask
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd
from tony_provider.runtime.jobspec.model import RestartPolicy, RestartScope
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, TaskState

PS_JOB = {"chief": 1, "ps": 2, "worker": 2}
GRACE = 10
WAIT = GRACE + limits.HEARTBEAT_INTERVAL


def ps_job(tasks: dict[str, Any] | None = None, *, alone: bool = False) -> World:
    return World(job(tasks or PS_JOB, policy=RestartPolicy(), grace=GRACE), ["chief"], alone=alone).run()


def test_it_fails_the_job_without_a_restart() -> None:
    world = ps_job()
    world.end("ps:1", output_tail="bye")
    world.wait(WAIT - 1)
    assert not world.session.verdict
    world.wait(1)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.task, failure.exit_code) == (FailureKind.USER, "ps:1", 0)
    assert failure.message.splitlines() == [
        "ps:1 on node3:1 ended with exit code 0, and chief:0 had not succeeded 13 s later; "
        "a ps must run until it is stopped, and is not restarted",
        "bye",
    ]
    assert world.states["ps:1"] is TaskState.FAILED
    assert world.generation == 1


@pytest.mark.parametrize("alone", [False, True])
def test_whatever_starts_again_when_it_fails(alone: bool) -> None:
    scope = RestartScope.TASK if alone else RestartScope.NEVER
    world = ps_job({**PS_JOB, "ps": task_type(2, restart=scope)}, alone=alone)
    world.end("ps:0")
    world.wait(WAIT)
    assert world.session.verdict
    assert world.generation == 1


def test_servers_that_end_when_the_chief_has_finished() -> None:
    world = ps_job()
    for name in ("ps:0", "ps:1"):
        world.end(name)
    world.wait(WAIT - 1)
    world.end("chief:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_chief_that_uploads_what_it_has_made_is_waited_for() -> None:
    world = ps_job()
    world.end("ps:0")
    for _ in range(30):
        world.handle(FromTask("chief:0", 1, Heartbeat({"rss_bytes": 0})))
        world.tick(3)
    world.end("chief:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_what_others_come_to_is_its_consequence() -> None:
    """The chief may be finished all the same."""
    world = ps_job()
    world.end("ps:0")
    world.end("worker:1", exit_code=1, output_tail="connection refused")
    assert not world.stops
    assert world.states["worker:1"] is TaskState.FAILED
    world.end("chief:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_once_a_task_that_decides_has_failed_nothing_is_waited_for() -> None:
    world = ps_job()
    world.end("ps:0")
    world.end("chief:0", exit_code=1)
    world.complete_all()
    assert "ps:0 on node2:1 ended with exit code 0" in world.verdict.message
    assert world.generation == 1


def test_a_restart_for_another_reason_begins_anew() -> None:
    world = ps_job()
    world.end("ps:0")
    world.lose("worker:1", ExitReason.PREEMPTED)
    world.restarted()
    assert world.generation == 2
    world.wait(2 * WAIT)
    assert not world.session.verdict
    assert world.states["ps:0"] is TaskState.RUNNING


def test_a_chief_that_is_not_heard_of_may_be_the_cause() -> None:
    world = ps_job()
    world.disconnect("chief:0")
    world.end("ps:0")
    world.wait(limits.lost_after(limits.HEARTBEAT_INTERVAL) + 1)
    world.restarted()
    assert world.generation == 2
    assert not world.session.verdict


def test_a_server_that_was_told_to_stop_may_say_0() -> None:
    world = ps_job()
    world.end("worker:0", exit_code=3)
    world.end("ps:0", stopped=True)
    world.restarted()
    assert world.generation == 2
    world.wait(2 * WAIT)
    assert not world.session.verdict


def test_a_new_application_master_gives_the_others_their_time_again() -> None:
    world = ps_job()
    world.end("ps:0")
    world.master_dies()
    world.come_back()
    assert not world.session.verdict
    world.wait(WAIT)
    assert world.session.verdict
    assert "ps:0" in world.session.verdict.message


def test_side_cars_fail_for_their_own_reasons() -> None:
    world = ps_job({**PS_JOB, "sidecar": 1})
    world.end("ps:0")
    world.end("sidecar:0", exit_code=1)
    assert world.rendezvous[-1].starts == {"sidecar:0": 2}


def test_an_end_that_is_told_twice_counts_once() -> None:
    world = ps_job()
    world.end("ps:0")
    world.wait(WAIT - 2)
    world.handle(FromTask("ps:0", 1, ProcessEnd(1)))
    world.wait(2)
    assert world.session.verdict

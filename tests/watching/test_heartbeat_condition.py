"""HeartbeatCondition over scripted observations: hours go by in no time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.operators.statuses import worker
from tests.watching.observations import OF_TRAINING, Clock, seen
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.runtime.protocol.status import TaskProgress, TaskStatus
from tony_provider.watching.conditions import (
    HeartbeatCondition,
    HeartbeatLimits,
    SensorEnd,
    SensorMemory,
    SensorOutcome,
)
from tony_provider.watching.job_poller import JobObservation
from tony_provider.watching.observation import TrainTaskState

LIMITS = HeartbeatLimits(max_heartbeat_age=60.0, min_steps_per_second=1.0, slow_for=30.0, task_types=None)
MASTER_MS = 5_000_000  # its clock is far from ours


class Watch:
    def __init__(self, limits: HeartbeatLimits = LIMITS, memory: SensorMemory | None = None) -> None:
        self.clock = Clock()
        self.memory = memory or SensorMemory(absent_since=self.clock.now)
        self.conditions = HeartbeatCondition(
            OF_TRAINING, self.memory, start_timeout=None, log=lambda _: None, clock=self.clock, limits=limits
        )

    def look(self, observation: JobObservation) -> SensorOutcome | None:
        return self.conditions.judge(observation, TrainTaskState())

    def stale(self, observation: JobObservation) -> str:
        """Why; empty when it is not."""
        outcome = self.look(observation)
        assert outcome is None or outcome.end is SensorEnd.STALE
        return outcome.message if outcome is not None else ""


def job(*tasks: TaskStatus, updated_ms: int = MASTER_MS, state: str = "RUNNING", **more: Any) -> JobObservation:
    return seen(state, updated_ms=updated_ms, tasks=list(tasks), **more)


def heard(index: int, seconds_ago: float, state: str = "RUNNING", **fields: Any) -> TaskStatus:
    return worker(index, state, heartbeat_ms=MASTER_MS - int(1000 * seconds_ago), node=f"node{index}:45454", **fields)


def running_at(speed: float | None, step: int = 5, total: int | None = None, index: int = 0) -> TaskStatus:
    return attrs.evolve(heard(index, 1), progress=TaskProgress(step, total, speed))


def test_each_task_that_is_not_heard_of_is_named_with_its_node_and_age() -> None:
    message = Watch().stale(job(heard(0, 61), heard(1, 59), heard(2, 300)))
    assert "the last heartbeat of worker:0 on node0:45454 was 1 min 1 s ago" in message
    assert "the last heartbeat of worker:2 on node2:45454 was 5 min ago" in message
    assert "worker:1" not in message


def test_many_are_summed_up() -> None:
    assert Watch().stale(job(*[heard(index, 100) for index in range(50)])).endswith("; and 40 more")


@pytest.mark.parametrize("state", ["WAITING", "STARTING", "RESTARTING", "SUSPENDED", "RECOVERING", "FINISHING"])
def test_a_job_that_is_not_running_is_not_judged(state: str) -> None:
    watch = Watch()
    for _ in range(3):
        assert not watch.stale(job(heard(0, 1000), state=state))
        watch.clock.now += 1000


@pytest.mark.parametrize("state", ["REQUESTED", "STARTING", "REGISTERED", "SUCCEEDED", "LOST", "STOPPED"])
def test_a_task_that_is_not_running_is_not_judged(state: str) -> None:
    assert not Watch().stale(job(heard(0, 1000, state), heard(1, 1)))


def test_only_tasks_of_the_types_wanted_are_judged() -> None:
    chief = attrs.evolve(heard(0, 1000), type="chief")
    assert not Watch(attrs.evolve(LIMITS, task_types=["worker"])).stale(job(chief, heard(0, 1)))
    assert "chief:0" in Watch(attrs.evolve(LIMITS, task_types=["chief"])).stale(job(chief, heard(0, 1000)))


def test_a_master_that_tells_nothing_any_more() -> None:
    watch = Watch()
    assert not watch.stale(job(heard(0, 1)))
    watch.clock.now += 59
    assert not watch.stale(job(heard(0, 0)))
    watch.clock.now += 2
    message = watch.stale(job(heard(0, 1)))
    assert "its application master has not updated the status for 1 min 1 s" in message
    assert "the last heartbeat of worker:0 on node0:45454 was 1 min 2 s ago" in message


def test_a_status_that_moves_is_of_a_master_that_lives() -> None:
    watch = Watch()
    for number in range(10):
        moved = heard(0, 1)
        assert not watch.stale(
            job(attrs.evolve(moved, heartbeat_ms=(moved.heartbeat_ms or 0) + number), updated_ms=MASTER_MS + number)
        )
        watch.clock.now += 59


def test_a_master_that_the_cluster_starts_again_is_waited_for() -> None:
    watch = Watch()
    assert not watch.stale(job(heard(0, 1)))
    watch.clock.now += 1000
    assert not watch.stale(job(heard(0, 1), cluster="ACCEPTED"))
    assert not watch.stale(job(heard(0, 1)))  # its status is not written yet


def test_an_outage_is_no_silence() -> None:
    watch = Watch()
    assert not watch.stale(job(heard(0, 1)))
    watch.clock.now += 500
    assert watch.look(JobObservation(outages=(ClusterUnreachable("gone"),))) is None
    assert not watch.stale(job(heard(0, 1)))


def test_a_list_of_applications_is_no_look_at_the_job() -> None:
    watch = Watch()
    assert not watch.stale(job(heard(0, 1)))
    watch.clock.now += 1000
    assert not watch.stale(attrs.evolve(job(heard(0, 1)), whole=False))


def test_another_application_begins_anew() -> None:
    watch = Watch()
    first = job(heard(0, 1))
    assert not watch.stale(first)
    watch.clock.now += 1000
    assert first.found is not None
    assert not watch.stale(attrs.evolve(first, found=attrs.evolve(first.found, application_id="application_1_0002")))


def test_what_is_too_slow_for_too_long() -> None:
    watch = Watch()
    assert not watch.stale(job(running_at(0.5), running_at(2.0, index=1), updated_ms=MASTER_MS))
    watch.clock.now += 31
    message = watch.stale(job(running_at(0.25), running_at(2.0, index=1), updated_ms=MASTER_MS + 1))
    assert message.endswith("worker:0 on node0:45454 has made 0.25 steps per second for 31 s")


def test_what_is_fast_again_in_time_is_not_too_slow() -> None:
    watch = Watch()
    for number, speed in enumerate([0.5, 1.0, 0.5, 1.5, 0.5]):
        assert not watch.stale(job(running_at(speed), updated_ms=MASTER_MS + number))
        watch.clock.now += 29


@pytest.mark.parametrize("progress", [(None, 5, None), (0.1, 9, 9)])
def test_without_two_steps_or_after_the_last_nothing_is_slow(progress: tuple[float | None, int, int | None]) -> None:
    watch = Watch()
    for number in range(3):
        assert not watch.stale(job(running_at(*progress), updated_ms=MASTER_MS + number))
        watch.clock.now += 59


def test_a_restart_gives_the_time_again() -> None:
    watch = Watch()
    assert not watch.stale(job(running_at(0.5)))
    watch.clock.now += 29
    assert not watch.stale(job(running_at(0.5), state="RESTARTING"))
    watch.clock.now += 29
    assert not watch.stale(job(running_at(0.5)))


def test_what_one_poke_knew_the_next_process_knows() -> None:
    first = Watch()
    assert not first.stale(job(running_at(0.5)))
    second = Watch(memory=SensorMemory(**attrs.asdict(first.memory)))
    second.clock.now += 31
    assert "worker:0" in second.stale(job(running_at(0.5)))


def test_it_ends_with_the_training() -> None:
    outcome = Watch().look(seen("SUCCEEDED", step=9))
    assert outcome is not None
    assert (outcome.end, outcome.result and outcome.result.step) == (SensorEnd.REACHED, 9)
    failed = Watch().conditions.judge(seen("FAILED"), TrainTaskState(is_over=True))
    assert failed is not None
    assert failed.end is SensorEnd.MISSED

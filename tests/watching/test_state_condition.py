"""StateCondition over scripted observations: every state in no time, and clusters that do not answer."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.operators.statuses import ID
from tests.watching.observations import (
    BY_ID,
    BY_TAG,
    FOUND,
    OF_TRAINING,
    Clock,
    nothing,
    seen,
    without_status,
)
from tony_provider.cluster.errors import ClusterUnreachable, ConnectionProblem
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus
from tony_provider.sensors.tony import STATES, state_names
from tony_provider.watching import job_watch
from tony_provider.watching.conditions import SensorEnd, SensorMemory, SensorResult, StateCondition
from tony_provider.watching.job_poller import FoundApplication, JobObservation, JobTarget
from tony_provider.watching.job_watch import OUTAGE_SECONDS
from tony_provider.watching.observation import TrainTask, TrainTaskState

UNKNOWN, GOES_ON, IS_OVER = (
    TrainTaskState(),
    TrainTaskState(is_over=False, state="up_for_retry"),
    TrainTaskState(True, "failed"),
)
LATER = f"{ID[:-1]}2"


class Watch:
    def __init__(self, target: JobTarget, *states: str, start_timeout: float | None = None) -> None:
        self.clock = Clock()
        self.log: list[str] = []
        self.conditions = StateCondition(
            target,
            SensorMemory(absent_since=self.clock.now),
            start_timeout=start_timeout,
            log=self.log.append,
            clock=self.clock,
            states=state_names(states or ("RUNNING", "SUCCEEDED")),
        )

    def end(self, observation: JobObservation, task_states: TrainTaskState = UNKNOWN) -> SensorEnd | None:
        outcome = self.conditions.judge(observation, task_states)
        return None if outcome is None else outcome.end

    def message(self, observation: JobObservation, task_states: TrainTaskState = UNKNOWN) -> str:
        outcome = self.conditions.judge(observation, task_states)
        assert outcome is not None
        return outcome.message


@pytest.mark.parametrize(
    ("states", "observation", "end"),
    [
        (["RUNNING"], seen("RUNNING"), SensorEnd.REACHED),
        (["RUNNING"], seen("WAITING"), None),
        (["RUNNING"], without_status("RUNNING"), None),  # its master is there, its tasks may not be
        (["RUNNING"], attrs.evolve(without_status("RUNNING"), found=FoundApplication(ID, None)), SensorEnd.REACHED),
        (["RUNNING"], seen("SUCCEEDED"), SensorEnd.MISSED),
        (["ACCEPTED"], without_status("ACCEPTED"), SensorEnd.REACHED),
        (["ACCEPTED"], seen("RUNNING", "ACCEPTED"), SensorEnd.REACHED),  # between two masters
        (["SUCCEEDED"], seen("FINISHING"), None),
        (["SUCCEEDED"], seen("SUCCEEDED"), SensorEnd.REACHED),
        (["SUCCEEDED"], seen("FAILED"), SensorEnd.MISSED),
        (["SUCCEEDED"], without_status("FINISHED", final_status=FinalStatus.SUCCEEDED), SensorEnd.REACHED),
        (
            ["SUCCEEDED"],
            attrs.evolve(seen("SUCCEEDED"), application=None),
            SensorEnd.REACHED,
        ),  # the cluster has forgotten it
        (["FAILED", "KILLED"], without_status("KILLED"), SensorEnd.REACHED),
        (["FAILED"], without_status("FAILED"), SensorEnd.REACHED),
        (["FINISHED"], seen("FAILED"), SensorEnd.REACHED),
        (["RUNNING"], seen("RUNNING", "FAILED"), SensorEnd.MISSED),  # its master died
    ],
)
def test_states_of_the_job_and_of_its_application(
    states: list[str], observation: JobObservation, end: SensorEnd | None
) -> None:
    assert Watch(BY_ID, *states).end(observation) == end


@pytest.mark.parametrize("given", ["running, succeeded", ["RUNNING", "SUCCEEDED"], ("Running", "Succeeded")])
def test_states_as_people_write_them(given: Any) -> None:
    assert state_names(given) == {"RUNNING", "SUCCEEDED"}


def test_a_state_that_is_none_is_told_with_the_nearest_and_all() -> None:
    with pytest.raises(ValueError, match=r"states: 'RUNING' is not a state; did you mean running\?") as error:
        state_names(["RUNING"])
    assert all(state in str(error.value) for state in STATES)
    with pytest.raises(ValueError, match="the list is empty"):
        state_names([])


def test_what_is_returned() -> None:
    outcome = Watch(BY_ID).conditions.judge(seen("RUNNING", step=3, total_steps=9, steps_per_second=1.5), UNKNOWN)
    assert outcome is not None
    assert outcome.result == SensorResult(ID, "RUNNING", 3, 9, 1.5)


def test_a_failure_tells_why() -> None:
    failure = Failure(FailureKind.USER, "worker:0 on node1 exited with 7", task="worker:0", exit_code=7)
    assert "worker:0 on node1 exited with 7" in Watch(BY_ID).message(seen("FAILED", failure=failure))
    assert "by an administrator" in Watch(BY_ID).message(without_status("KILLED", diagnostics="by an administrator"))


@pytest.mark.parametrize("target", [BY_ID, BY_TAG])
def test_an_application_that_no_task_is_known_of_is_not_waited_beyond(target: JobTarget) -> None:
    assert Watch(target, start_timeout=600.0).end(seen("FAILED")) is SensorEnd.MISSED


def test_a_retry_is_followed_to_its_new_application() -> None:
    watch = Watch(OF_TRAINING, "SUCCEEDED")
    assert watch.end(seen("RUNNING")) is None
    assert watch.end(seen("FAILED"), GOES_ON) is None
    assert watch.end(seen("FAILED"), GOES_ON) is None
    following = attrs.evolve(seen("RUNNING"), found=attrs.evolve(FOUND, application_id=LATER))
    assert watch.end(following) is None
    assert [line for line in watch.log if line.startswith("Watching")] == [f"Watching {ID}", f"Watching {LATER}"]
    waits = "waiting for the training's next application (the training task is up_for_retry)"
    assert sum(waits in line for line in watch.log) == 1
    assert watch.end(attrs.evolve(seen("SUCCEEDED"), found=following.found), GOES_ON) is SensorEnd.REACHED


def test_a_task_that_airflow_has_done_with_is_not_waited_for() -> None:
    assert Watch(OF_TRAINING).end(seen("FAILED"), IS_OVER) is SensorEnd.MISSED
    assert "the training task is failed" in Watch(OF_TRAINING).message(nothing(), IS_OVER)
    assert Watch(OF_TRAINING).end(seen("RUNNING"), IS_OVER) is SensorEnd.REACHED  # as with wait_for_completion=False


def test_a_success_is_final_whatever_airflow_says() -> None:
    assert Watch(OF_TRAINING, "RUNNING").end(seen("SUCCEEDED"), GOES_ON) is SensorEnd.MISSED


def test_where_airflow_tells_nothing_the_next_application_may_take_start_timeout() -> None:
    for start_timeout, seconds in ((60.0, 60.0), (None, OUTAGE_SECONDS)):
        watch = Watch(OF_TRAINING, start_timeout=start_timeout)
        assert watch.end(seen("FAILED")) is None
        watch.clock.now += seconds - 1
        assert watch.end(seen("FAILED")) is None
        watch.clock.now += 2
        assert watch.end(seen("FAILED")) is SensorEnd.MISSED


@pytest.mark.parametrize("target", [OF_TRAINING, BY_TAG, BY_ID])
def test_start_timeout(target: JobTarget) -> None:
    watch = Watch(target, start_timeout=60.0)
    watch.clock.now += 59
    assert watch.end(nothing(), GOES_ON) is None
    watch.clock.now += 2
    assert "within start_timeout (60 s); the training task is up_for_retry" in watch.message(nothing(), GOES_ON)
    assert watch.end(nothing(), GOES_ON) is SensorEnd.START_TIMEOUT


def test_start_timeout_counts_anew_when_there_was_an_application() -> None:
    watch = Watch(OF_TRAINING, "SUCCEEDED", start_timeout=60.0)
    watch.clock.now += 59
    assert watch.end(seen("RUNNING")) is None
    watch.clock.now += 59
    assert watch.end(seen("FAILED"), GOES_ON) is None
    watch.clock.now += 59
    assert watch.end(JobObservation(found=FOUND), GOES_ON) is None  # the next is about to be submitted
    watch.clock.now += 61
    assert watch.end(JobObservation(found=FOUND), GOES_ON) is SensorEnd.START_TIMEOUT


def test_without_start_timeout_a_training_is_waited_for_and_an_id_is_not() -> None:
    training, by_id = Watch(OF_TRAINING), Watch(BY_ID)
    assert by_id.end(nothing()) is None
    training.clock.now = by_id.clock.now = by_id.clock.now + 3600
    assert training.end(nothing(), GOES_ON) is None
    assert f"the cluster does not know {ID}" in by_id.message(nothing())


def test_an_outage_is_told_once_and_borne_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(BY_ID)
    gone = JobObservation(outages=(ClusterUnreachable("nobody answers"),))
    assert [watch.end(gone), watch.end(gone)] == [None, None]
    assert sum("nobody answers" in line for line in watch.log) == 1
    assert watch.end(seen("WAITING")) is None
    assert "The cluster answers again, after 0 s" in watch.log
    assert watch.end(gone) is None
    monkeypatch.setattr(job_watch, "OUTAGE_SECONDS", -1.0)
    with pytest.raises(ClusterUnreachable):
        watch.end(gone)


def test_what_no_waiting_mends_is_an_error_at_once() -> None:
    with pytest.raises(ConnectionProblem):
        Watch(BY_ID).end(JobObservation(outages=(ConnectionProblem("removed"),)))


@pytest.mark.parametrize(
    ("index", "states", "task_states"),
    [
        (-1, {"train": "running"}, TrainTaskState(False, "running")),
        (-1, {"train": None}, TrainTaskState(False, "none")),
        (-1, {"train": "success"}, TrainTaskState(True, "success")),
        (2, {"train_1": "failed", "train_2": "up_for_retry"}, TrainTaskState(False, "up_for_retry")),
        (2, {"train": "upstream_failed"}, TrainTaskState(True, "upstream_failed")),  # not expanded
        (None, {"train_0": "failed", "train_1": "deferred"}, TrainTaskState(False, "deferred")),
        (None, {"train_0": "failed", "train_1": "success"}, TrainTaskState(True, "failed")),
        (-1, {}, TrainTaskState()),
    ],
)
def test_what_airflow_says_of_the_task(index: int | None, states: dict[str, Any], task_states: TrainTaskState) -> None:
    assert TrainTask("dag", "run", "train", index).read(states) == task_states

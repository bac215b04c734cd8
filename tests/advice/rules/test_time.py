"""Where the time went: checkpoints, restarts, the queue, the start, nodes that fail."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import HOUR, TIMES, history, run, said, silent
from tony_provider.advice.rules.restart_costs import CheckpointInterval, FailingNode, RestartCost, best_interval, cost
from tony_provider.advice.rules.start_delay import QueueWait, SlowStart
from tony_provider.cluster.records.summary import Confidence
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, TimeUse

CHECKPOINTS, RESTARTS, QUEUE, START, NODE = CheckpointInterval(), RestartCost(), QueueWait(), SlowStart(), FailingNode()
ROUGH = attrs.evolve(TIMES, restarts=600.0, repeated=900.0, checkpoints=60.0)


def saved(every: float, times: int = 6) -> list[dict[str, Any]]:
    at = [int(1000 * every * each) for each in range(1, times + 1)]
    return [{"time_ms": ms, "event": "checkpoint", "data": {"checkpoint": {"saved_ms": ms}}} for ms in at]


def test_checkpoints_too_rare_for_so_many_failures() -> None:
    advice = said(CHECKPOINTS, history(events=saved(1200.0), restarts=4, times=ROUGH))
    # A copy of 10 s, and 17.5 minutes between failures: sqrt(2 * 10 * 1050) = 145 s.
    assert advice.text.startswith("Save checkpoints more often: every 2 min 25 s instead of every 20 min, ")
    assert round(advice.evidence["best_interval_seconds"]) == 145
    assert (advice.change, advice.confidence) == (None, Confidence.HIGH)


def test_checkpoints_of_which_the_first_are_not_known_any_more() -> None:
    """What a job has copied is told for all of them."""
    dropped = {"time_ms": 1, "event": "dropped", "message": "9000 older events", "dropped": 9000}
    for events in ([dropped, *saved(1200.0)], [dropped]):
        assert silent(CHECKPOINTS, history(events=events, restarts=4, times=ROUGH))


def test_checkpoints_of_which_the_copies_never_end() -> None:
    busy = attrs.evolve(TIMES, checkpoints=3000.0)
    advice = said(CHECKPOINTS, history(events=saved(10.0, 300), times=busy))
    assert advice.text.startswith("Save checkpoints less often: every 4 min 28 s instead of every 10 s")
    assert advice.confidence is Confidence.LOW  # nothing has failed yet


def test_checkpoints_that_are_right_and_those_of_a_job_that_never_failed() -> None:
    assert silent(CHECKPOINTS, history(events=saved(150.0), restarts=4, times=ROUGH))
    assert silent(CHECKPOINTS, history(events=saved(1200.0), times=attrs.evolve(ROUGH, restarts=0.0)))
    assert silent(CHECKPOINTS, history())
    short = TimeUse(training=100.0, restarts=20.0, repeated=50.0)
    assert silent(CHECKPOINTS, history(restarts=2, times=short))
    assert silent(CHECKPOINTS, history(events=saved(20.0), restarts=4, times=short))
    assert silent(CHECKPOINTS, history(events=saved(1200.0, 1), times=ROUGH))  # how often it saves is not known


def test_a_checkpoint_that_remained_the_only_one() -> None:
    advice = said(CHECKPOINTS, history(events=saved(1200.0, 1), restarts=4, times=ROUGH))
    assert advice.text.startswith("Save checkpoints more often: every 5 min 55 s instead of every 1 h 10 min, ")


def test_copies_that_take_nothing_are_no_reason_to_save_all_the_time() -> None:
    quick = attrs.evolve(ROUGH, checkpoints=0.0)
    rare = said(CHECKPOINTS, history(events=saved(1200.0), restarts=4, times=quick))
    assert "every 46 s instead of every 20 min, because a copy takes less than 1 s" in rare.text
    assert silent(CHECKPOINTS, history(events=saved(40.0), restarts=4, times=quick))
    assert silent(CHECKPOINTS, history(events=saved(0.1), restarts=4, times=quick))


def test_no_checkpoint_and_a_restart() -> None:
    advice = said(CHECKPOINTS, history(restarts=2, times=ROUGH))
    assert "no checkpoint was saved, and 2 restarts caused 15 min of repeated training" in advice.text


@given(copy=st.floats(0.001, 1e5), between=st.floats(1, 1e8), other=st.floats(0.01, 1e8))
def test_no_interval_costs_less_than_youngs(copy: float, between: float, other: float) -> None:
    assert cost(best_interval(copy, between), copy, between) <= cost(other, copy, between) * (1 + 1e-9)


def test_restarts_and_who_failed() -> None:
    events = [{"time_ms": 1, "event": "failed", "task": task} for task in ("worker:1", "worker:1", "worker:0")]
    advice = said(RESTARTS, history(restarts=3, times=ROUGH, events=events), [run(1, times=ROUGH)])
    assert advice.text == (
        "3 restarts cost 35% of its time: 10 min until it trained again, and 15 min of repeated training; worker:1 "
        "failed 2 of 3 times, so check its log first"
    )
    assert advice.confidence is Confidence.MEDIUM


def test_restarts_that_cost_little() -> None:
    assert silent(RESTARTS, history(restarts=1, times=attrs.evolve(TIMES, restarts=60.0)))
    assert silent(RESTARTS, history(restarts=1, times=TimeUse(training=60.0, restarts=20.0)))  # of a short job
    assert silent(RESTARTS, history())


def test_one_restart() -> None:
    events = [{"time_ms": 1, "event": "failed", "task": "worker:1"}]
    advice = said(RESTARTS, history(restarts=1, times=ROUGH, events=events))
    assert advice.text.endswith("15 min of repeated training; worker:1 failed, so check its log first")


LONG = attrs.evolve(TIMES, queue=HOUR, allocation=HOUR)


def test_a_long_wait_for_a_gang() -> None:
    advice = said(QUEUE, history(times=LONG))
    assert advice.text == (
        "The job waited 2 h, 66% of its time, for 4 containers (32 GiB) at once: request fewer or smaller ones, "
        "or use another queue"
    )
    assert advice.change is None


def test_tasks_that_do_without_each_other_need_not_wait() -> None:
    advice = said(QUEUE, history(job={"framework": "standalone"}, times=LONG))
    assert advice.change == {"start": "first-come"}
    assert said(QUEUE, history(job={"framework": "standalone", "start": "first-come"}, times=LONG)).change is None


def test_no_wait_worth_a_word() -> None:
    assert silent(QUEUE, history())
    assert silent(QUEUE, history(times=attrs.evolve(TIMES, queue=None, allocation=200.0, training=1.0)))
    assert silent(QUEUE, history(times=attrs.evolve(LONG, training=100 * HOUR)))


def test_a_slow_start() -> None:
    advice = said(START, history(times=attrs.evolve(TIMES, localisation=1200.0, start=60.0)))
    assert "send fewer files" in advice.text
    assert "prepare the data earlier" in said(START, history(times=attrs.evolve(TIMES, start=1200.0))).text
    assert silent(START, history())
    assert silent(START, history(times=attrs.evolve(TIMES, start=100.0, training=1.0)))
    assert silent(START, history(times=attrs.evolve(TIMES, start=1200.0, training=0.0)))


def test_a_node_that_loses_containers_again_and_again() -> None:
    losses = [{"time_ms": at, "event": "node_loss", "data": {"nodes": {"n2:45454": at}}} for at in (1, 2, 3)]
    advice = said(NODE, history(events=losses), [run(1, verdict=FinalStatus.FAILED, failed_node="n2")])
    assert advice.text.startswith("3 containers of this application and 1 application of earlier runs failed on n2: ")
    assert advice.change == {"restart": {"node_losses": 1}}
    assert said(NODE, history(events=losses, job={"restart": {"node_losses": 1}})).change is None


def test_the_same_node_in_former_runs() -> None:
    failure = Failure(FailureKind.USER, "no", task="worker:2")
    failed = [run(n, verdict=FinalStatus.FAILED, failed_node="n2:8041", failure_kind="USER") for n in (1, 2, 3)]
    job = history(state=JobState.FAILED, failure=failure)
    advice = said(NODE, job, [run(4), *failed])
    assert advice.confidence is Confidence.HIGH
    assert advice.evidence["applications"] == 4
    assert silent(NODE, job, [run(4), failed[0]])  # twice: that may be chance
    assert silent(NODE, job, failed)  # it has never succeeded anywhere
    lost = [attrs.evolve(each, failure_kind="CONTAINER_LOST") for each in failed[:2]]
    assert said(NODE, history(), lost).confidence is Confidence.MEDIUM


def test_a_program_that_fails_wherever_it_runs() -> None:
    former = [run(n, verdict=FinalStatus.FAILED, failed_node=f"n{n}") for n in (0, 1, 2, 3)]
    assert silent(NODE, history(), former)
    assert silent(NODE, history(), [run(1, failed_node="n1")])
    only = [run(n, failed_node="n0", failure_kind="CONTAINER_LOST") for n in (1, 2, 3)]
    assert silent(NODE, history(nodes=("n0", "n0")), only)  # there is no other
    assert silent(NODE, history())

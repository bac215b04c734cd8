"""Jobs with windows: outside of them they are suspended by themselves. The world begins on a Monday at 13:48 UTC."""

from __future__ import annotations

from typing import Any

import attrs

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.jobspec.model import GrowRule, OpenHours, RestartPolicy, Windows
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

NOON = "13:00-14:00"  # it closes 700 s after the world's beginning
CLOSES = 700.0
LATER = "16:00-17:00"
OPENS = 2.2 * 3600  # until then, from the beginning


def world(*hours: str, **timeouts: Any) -> World:
    spec = job({"worker": 2}, policy=RestartPolicy(budget=3), grace=10, checkpoint=20, **timeouts)
    return World(attrs.evolve(spec, windows=Windows([OpenHours(each) for each in hours])), ["worker"])


def closed(*hours: str) -> World:
    """One that ran until its window closed."""
    jobs = world(*hours).run()
    jobs.wait(CLOSES)
    jobs.commit(5)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED
    jobs.complete_all()
    return jobs


def test_a_job_is_suspended_when_its_window_closes() -> None:
    jobs = world(NOON, LATER).run()
    jobs.wait(CLOSES - 5)
    assert (jobs.session.phase, jobs.asked) == (JobState.RUNNING, [])
    jobs.wait(10)
    assert jobs.asked[-1].tasks == ("worker:0",)
    jobs.commit(5)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED
    why = "none of the job's windows is open; the next window opens Mon 16:00 (UTC)"
    assert jobs.status.message == f"{why}; `airflow tony resume` resumes the job"


def test_and_goes_on_when_the_next_one_opens() -> None:
    jobs = closed(NOON, LATER)
    jobs.wait(OPENS - CLOSES - 600)
    assert not jobs.outstanding
    jobs.wait(1200)
    assert jobs.session.phase is JobState.WAITING
    assert jobs.run().rendezvous[-1].resume == point(5, "store/step-5-1")
    assert jobs.session.state.restarts == 0


def test_one_that_begins_outside_of_its_windows_asks_for_nothing() -> None:
    jobs = world(LATER, queue=300.0)
    assert (jobs.session.phase, jobs.outstanding, jobs.keys) == (JobState.SUSPENDED, {}, set())
    jobs.wait(OPENS + 100)
    assert jobs.run().session.phase is JobState.RUNNING
    jobs.end("worker:0")
    jobs.end("worker:1")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def test_by_somebodys_word_it_goes_on_until_the_next_window_has_closed() -> None:
    jobs = closed(NOON, LATER)
    jobs.resume()
    jobs.run()
    jobs.wait(1000)
    assert set(jobs.states.values()) == {TaskState.RUNNING}
    jobs.master_dies()
    jobs.come_back()
    jobs.wait(OPENS - CLOSES)  # it opens meanwhile
    assert set(jobs.states.values()) == {TaskState.RUNNING}
    jobs.wait(3600)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED


def test_a_window_that_opens_and_closes_while_no_master_is_there_ends_the_override() -> None:
    jobs = closed(NOON, LATER)
    jobs.resume()
    jobs.run()
    jobs.now += OPENS - CLOSES + 2 * 3600
    jobs.master_dies()
    jobs.come_back()
    assert "none of the job's windows is open" in jobs.status.message
    jobs.obey_all()
    jobs.wait(CHECKPOINT_WAIT + 5)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED


def test_by_somebodys_word_it_stays_suspended_when_a_window_opens() -> None:
    jobs = closed(NOON, LATER)
    jobs.suspend("the cluster is repaired")
    assert "the cluster is repaired" in jobs.status.message
    jobs.master_dies()
    jobs.wait(OPENS - CLOSES + 600)
    assert (jobs.session.phase, jobs.outstanding) == (JobState.SUSPENDED, {})
    jobs.resume()
    assert jobs.run().session.phase is JobState.RUNNING


def test_somebodys_word_that_it_stays_suspended_takes_back_no_other_word() -> None:
    """Of a job that begins anew with what it needs, once it has given everything back."""
    worker = task_type(1, max_instances=3, grow=GrowRule.SPARE)
    spec = attrs.evolve(job({"worker": worker}, grace=10, checkpoint=20), windows=Windows([OpenHours(LATER)]))
    jobs = World(spec, ["worker"])
    assert jobs.session.phase is JobState.SUSPENDED
    jobs.resize(worker=2)
    jobs.suspend("the cluster is repaired")
    jobs.master_dies()
    jobs.resume()
    assert len(jobs.outstanding) == 2


def test_so_it_does_when_it_was_suspended_while_one_was_open() -> None:
    jobs = world(NOON, LATER)
    jobs.suspend("the cluster is repaired")
    jobs.wait(OPENS + 600)
    assert jobs.session.phase is JobState.SUSPENDED


def test_the_next_master_knows_that_it_was_the_window() -> None:
    jobs = closed(NOON, LATER)
    jobs.master_dies()
    assert (jobs.session.phase, jobs.outstanding) == (JobState.SUSPENDED, {})
    jobs.wait(OPENS - CLOSES + 600)
    assert jobs.run().session.phase is JobState.RUNNING


def test_a_window_that_opens_while_no_master_is_there() -> None:
    jobs = closed(NOON, LATER)
    jobs.now += OPENS - CLOSES + 600
    jobs.master_dies()
    jobs.tick()
    assert jobs.run().session.phase is JobState.RUNNING


def test_a_window_that_closes_while_no_master_is_there() -> None:
    jobs = world(NOON, LATER)
    jobs.now += CLOSES
    jobs.master_dies()
    assert (jobs.session.phase, jobs.keys) == (JobState.SUSPENDED, set())
    jobs.resume()
    jobs.run().tick()
    assert set(jobs.states.values()) == {TaskState.RUNNING}


def test_its_time_in_the_queue_begins_with_its_window() -> None:
    jobs = world(LATER, queue=300.0)
    jobs.wait(OPENS)
    assert jobs.session.verdict is None
    jobs.wait(400)
    jobs.complete_all()
    assert jobs.verdict.failure
    assert jobs.verdict.failure.kind is FailureKind.QUEUE_TIMEOUT


def test_one_that_is_ending_ends() -> None:
    jobs = world(NOON)
    jobs.run()
    jobs.stop()
    jobs.wait(CLOSES)
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.KILLED

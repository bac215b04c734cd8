"""JobWatch against a scripted cluster: outages and forgotten applications cannot be had on the real one in no time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, cast

import attrs
import pytest

from tests.operators.statuses import ID, application, status
from tony_provider.cluster.errors import (
    ClusterAuthError,
    ClusterError,
    ClusterUnreachable,
    ConnectionProblem,
    RecordUnreadable,
)
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus, TimeUse
from tony_provider.runtime.storage.errors import StorageUnreachable
from tony_provider.watching import job_watch
from tony_provider.watching.job_watch import JobWatch, WatchEnd, WatchLimits, WatchResult
from tony_provider.watching.observation import Observation, observe

Answer = Application | None | Exception
HOUR = 3600.0
PAST, FUTURE = 0.0, time.time() + 1e9  # deadlines, in seconds since the epoch


class ScriptedHook:
    def __init__(self, *answers: Answer, job: JobStatus | Exception | None = None) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self._job = job

    def application(self, application_id: str) -> Application | None:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def job_status(self, *_: Any, **__: Any) -> JobStatus | None:
        if isinstance(self._job, Exception):
            raise self._job
        return self._job


class Looking:
    """Looks and judges, as a worker does."""

    def __init__(self, hook: ScriptedHook, watched: JobWatch) -> None:
        self._job = TonyJob(cast(TonyHook, hook), ID, Identity("x", "0"))
        self._watched = watched

    def look(self) -> WatchResult | None:
        return self._watched.judge(observe(self._job))


def ending(watched: Looking) -> tuple[WatchEnd, str] | None:
    seen = watched.look()
    return None if seen is None else (seen.reason, seen.last_message)


def watch_of(hook: ScriptedHook, log: list[str] | None = None, **deadlines: float) -> Looking:
    said = [] if log is None else log
    return Looking(hook, JobWatch(ID, WatchLimits(**deadlines), said.append))


def test_short_outages_are_borne_and_told_once() -> None:
    log: list[str] = []
    gone = ClusterUnreachable("nobody answers")
    watched = watch_of(ScriptedHook(gone, StorageUnreachable("hdfs://x", "read", "no"), application(), gone), log)
    assert [watched.look() for _ in range(4)] == [None] * 4
    assert [re.sub(r"since \S+ \S+ UTC", "since then", line) for line in log] == [
        "The cluster does not answer since then: nobody answers",
        "The cluster answers again, after 0 s",
        "The store does not answer since then: cannot read hdfs://x: no; check that the store runs and that its "
        "addresses are right",
        "The store answers again, after 0 s",
        f"{ID} is RUNNING",
    ]


@pytest.mark.parametrize("error", [ClusterUnreachable("gone"), ClusterAuthError("who?")])
def test_a_long_outage_is_an_error(error: ClusterError, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_of(ScriptedHook(error, error))
    assert watched.look() is None
    monkeypatch.setattr(job_watch, "OUTAGE_SECONDS", 0.0)
    with pytest.raises(type(error)):
        watched.look()


def test_what_no_waiting_mends_is_an_error_at_once() -> None:
    with pytest.raises(ConnectionProblem):
        watch_of(ScriptedHook(ConnectionProblem("removed"))).look()


def test_the_deadline_holds_during_an_outage() -> None:
    assert ending(watch_of(ScriptedHook(ClusterUnreachable("gone")), end=PAST)) == (WatchEnd.DEADLINE, "")


def test_a_job_that_ended_just_before_its_deadline_has_ended() -> None:
    last = application("FINISHED")
    assert watch_of(ScriptedHook(last), end=PAST).look() == WatchResult(WatchEnd.FINISHED, application=last)


def test_forgotten_with_a_result_is_finished() -> None:
    job = status("SUCCEEDED")
    assert watch_of(ScriptedHook(None, job=job)).look() == WatchResult(WatchEnd.FINISHED, status=job)


def test_forgotten_without_a_result_is_believed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_of(ScriptedHook(None, application(), None, None, job=status("RUNNING", message="2 of 2 run")))
    assert [watched.look() for _ in range(3)] == [None] * 3
    monkeypatch.setattr(job_watch, "FORGOTTEN_SECONDS", -1.0)
    assert ending(watched) == (WatchEnd.FORGOTTEN, "2 of 2 run")


def unreadable(name: str) -> RecordUnreadable:
    return RecordUnreadable(f"hdfs://nn/{ID}/{name}", "not a valid JobStatus", "the cluster's word counts")


UNREADABLE_STATUS, UNREADABLE_RESULT = unreadable("status.json"), unreadable("result.json")
SUCCEEDED = application("FINISHED", final_status=FinalStatus.SUCCEEDED)
FAILED = application("FINISHED", final_status=FinalStatus.FAILED)


def test_a_status_that_cannot_be_read_is_told_once_and_done_without() -> None:
    log: list[str] = []
    hook = ScriptedHook(application(), application(), None, application(), FAILED, job=UNREADABLE_STATUS)
    watched = watch_of(hook, log, queue=FUTURE)
    assert [watched.look() for _ in range(4)] == [None] * 4
    assert watched.look() == WatchResult(WatchEnd.FINISHED, application=FAILED)
    assert sum("hdfs://nn/" in line for line in log) == 1


@pytest.mark.parametrize("cluster", [application(), FAILED, application("KILLED")])
def test_a_result_that_cannot_be_read_is_done_without_where_the_cluster_tells(cluster: Application) -> None:
    seen = watch_of(ScriptedHook(cluster, job=UNREADABLE_RESULT)).look()
    assert seen == (WatchResult(WatchEnd.FINISHED, application=cluster) if cluster.is_final else None)


def test_a_success_whose_result_cannot_be_read_is_an_error_that_names_it() -> None:
    with pytest.raises(RecordUnreadable, match=r"hdfs://nn/.*/result\.json: not a valid JobStatus"):
        watch_of(ScriptedHook(SUCCEEDED, job=UNREADABLE_RESULT)).look()


def test_forgotten_with_a_result_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_of(ScriptedHook(None, None, None, job=UNREADABLE_RESULT))
    assert watched.look() is None
    monkeypatch.setattr(job_watch, "FORGOTTEN_SECONDS", -1.0)
    with pytest.raises(RecordUnreadable):
        watched.look()
    assert ending(watch_of(ScriptedHook(None, job=UNREADABLE_STATUS))) == (WatchEnd.FORGOTTEN, "")


@pytest.mark.parametrize(
    ("cluster", "job", "late", "reason"),
    [
        (application("ACCEPTED"), None, True, WatchEnd.QUEUE_TIMEOUT),
        (application("RUNNING"), status("WAITING"), True, WatchEnd.QUEUE_TIMEOUT),
        (application("RUNNING"), status("WAITING"), False, None),
        (application("RUNNING"), status("STARTING"), True, None),
        (application("RUNNING"), status("RUNNING"), True, None),
        (application("RUNNING"), status("WAITING", generation=1), True, None),  # for containers that it has lost
        (application("ACCEPTED"), status("RUNNING", generation=1), True, None),  # for its next master
        (application("ACCEPTED"), status("WAITING"), True, WatchEnd.QUEUE_TIMEOUT),
        (application("RUNNING"), status("SUSPENDED"), True, None),
        (application("RUNNING"), status("WAITING", times=TimeUse(suspended=60.0)), True, None),  # it counts anew
        (application("RUNNING"), None, True, None),  # its first status is on its way
        (application("FINISHED"), status("FAILED"), True, WatchEnd.FINISHED),
    ],
)
def test_queue_deadline(cluster: Application, job: JobStatus | None, late: bool, reason: WatchEnd | None) -> None:
    seen = watch_of(ScriptedHook(cluster, job=job), queue=PAST if late else FUTURE).look()
    assert (seen.reason if seen else None) == reason


@pytest.mark.parametrize(
    ("whole", "job", "late", "wanted"),
    [
        (False, None, True, True),
        (False, status("WAITING"), True, True),
        (False, status("RUNNING", generation=1), True, False),
        (False, status("SUSPENDED", times=TimeUse(suspended=60.0)), True, False),
        (False, None, False, False),
        (True, None, True, False),  # it was just looked at: another look would follow on the heels of this one
    ],
)
def test_a_look_at_the_job_is_wanted_where_only_that_tells(
    whole: bool, job: JobStatus | None, late: bool, wanted: bool
) -> None:
    watched = JobWatch(ID, WatchLimits(queue=PAST if late else FUTURE), print)
    seen = Observation(application(), job, whole=whole)
    watched.judge(seen)
    assert watched.wants_look(seen) is wanted


@pytest.mark.parametrize(("ahead", "over"), [(-2 * HOUR, False), (2 * HOUR, True), (0.0, True)])
def test_limits_are_counted_by_the_clusters_clock(ahead: float, over: bool) -> None:
    """Seen: a triggerer on a machine two hours ahead ended a job by execution_timeout after 3 s."""
    log: list[str] = []
    watched = JobWatch(ID, WatchLimits(end=time.time() - HOUR), log.append)
    assert watched.judge(None) is None, "without an answer of the cluster, its clock is unknown"
    seen = Observation(attrs.evolve(application(), clock_ahead=ahead), status("RUNNING", generation=1))
    assert (watched.judge(seen) is not None) is over
    assert watched.judge(seen) is None or over
    told = [line for line in log if "clock of this machine" in line]
    assert told == (
        [
            f"The clock of this machine is 2 h {'ahead of' if ahead < 0 else 'behind'} the cluster's clock. Time "
            "limits are counted by the cluster's clock"
        ]
        if ahead
        else []
    )

"""Silence over scripted observations: what is told of a cluster, a store, a status and a master that say nothing."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import attrs
import pytest

from tests.operators.statuses import ID, application, status
from tests.watching.observations import Clock
from tony_provider.cluster.errors import ClusterAuthError, ClusterUnreachable, MasterOutOfReach
from tony_provider.cluster.interface import Application
from tony_provider.runtime.protocol.limits import SLOW_ANSWER, STATUS_STALE
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus
from tony_provider.runtime.storage.errors import StorageNoSpace, StorageUnreachable
from tony_provider.watching.observation import Observation, Peer, UnansweredCalls
from tony_provider.watching.progress_log import ReachabilityLog

RM_GONE = ClusterUnreachable("nobody answers")
STORE_GONE = StorageUnreachable("hdfs://x", "read", "connection refused", "")
_TIME = re.compile(r" since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


class Watcher:
    def __init__(self) -> None:
        self.clock = Clock()
        self.contact = UnansweredCalls(self.clock)
        self.lines: list[str] = []
        self.silence = ReachabilityLog(
            self.contact, lambda line: self.lines.append(_TIME.sub(" since then", line)), self.clock
        )

    def look(self, seen: Observation | None, seconds: float = 0.0) -> list[str]:
        """What is new."""
        self.clock.now += seconds
        self.silence.look(seen)
        lines, self.lines = self.lines[:], []
        return lines

    def ask_in_vain(self, seconds: float) -> None:
        """The store, which does not answer for so long."""
        with contextlib.suppress(StorageUnreachable), self.contact.asking(Peer.STORE):
            self.clock.now += seconds
            raise STORE_GONE


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def running(attempt: int = 1) -> Application:
    return attempt_of("RUNNING", attempt)


def attempt_of(state: str, number: int, **fields: Any) -> Application:
    attempt = ID.replace("application", "appattempt") + f"_{number:06}"
    return attrs.evolve(application(state), attempt=attempt, **fields)


def written(updated_ms: int = 1000, **fields: Any) -> Observation:
    return Observation(running(), status("RUNNING", updated_ms=updated_ms), **fields)


# ---- cluster and store ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outage", "line", "over"),
    [
        (
            RM_GONE,
            "The cluster does not answer since then: nobody answers",
            "The cluster answers again",
        ),
        (ClusterAuthError("who?"), "The cluster rejects requests since then: who?", "The cluster answers again"),
        (
            STORE_GONE,
            "The store does not answer since then: cannot read hdfs://x: connection refused",
            "The store answers again",
        ),
        (
            StorageNoSpace("hdfs://x", "read", "no", ""),
            "The store rejects requests since then: cannot read hdfs://x: no",
            "The store answers again",
        ),
    ],
)
def test_an_outage(watcher: Watcher, outage: Any, line: str, over: str) -> None:
    assert watcher.look(written()) == []
    away = written(outages=(outage,), whole=False)
    assert watcher.look(away, 5) == [line]
    assert watcher.look(away, 5) == []
    assert watcher.look(None, 5) == []
    assert watcher.look(written(2000), 10) == [f"{over}, after 20 s"]


def test_a_call_that_hangs_is_told_before_it_ends(watcher: Watcher) -> None:
    with watcher.contact.asking(Peer.STORE):
        assert watcher.look(None, SLOW_ANSWER) == []
        assert watcher.look(None, 1) == ["The store does not answer since then"]
        assert watcher.look(None, 33) == []
    assert watcher.look(None, 1) == []  # nobody has looked at what it said
    assert watcher.look(written()) == ["The store answers again, after 45 s"]


def test_while_nobody_could_look_nobody_was_silent(watcher: Watcher) -> None:
    """As in a process that a busy machine does not let run."""
    with watcher.contact.asking(Peer.CLUSTER):
        assert watcher.look(None, 1) == []
        assert watcher.look(None, 55) == []
        assert watcher.look(None, SLOW_ANSWER) == []
        assert watcher.look(None, 1) == ["The cluster does not answer since then"]


def test_and_what_is_said_at_its_end(watcher: Watcher) -> None:
    watcher.ask_in_vain(SLOW_ANSWER + 1)
    assert watcher.look(Observation(running(), outages=(STORE_GONE,)), 1) == [
        "The store does not answer since then: cannot read hdfs://x: connection refused"
    ]


def test_calls_of_others_tell_the_same(watcher: Watcher) -> None:
    """Of a store that a poller asks for many jobs in turn: this one's turn has not come yet."""
    for _ in range(5):
        watcher.ask_in_vain(20)
    listed = attrs.evolve(written(), whole=False)
    (line,) = watcher.look(listed)
    assert line.startswith("The store does not answer since then: cannot read")
    with watcher.contact.asking(Peer.STORE):
        assert watcher.look(listed, 5) == []
    assert watcher.look(listed) == ["The store answers again, after 1 min 45 s"]


def test_an_error_is_told_of_the_server_that_it_is_of(watcher: Watcher) -> None:
    """Opening the store may ask the cluster for its address."""
    with contextlib.suppress(ClusterUnreachable), watcher.contact.asking(Peer.STORE):
        watcher.clock.now += SLOW_ANSWER + 1
        raise RM_GONE
    assert watcher.look(None) == ["The cluster does not answer since then: nobody answers"]


def test_one_slow_call_among_others_is_no_outage(watcher: Watcher) -> None:
    with watcher.contact.asking(Peer.STORE):
        for _ in range(10):
            with watcher.contact.asking(Peer.STORE):
                assert watcher.look(None, SLOW_ANSWER / 2) == []


def test_a_cluster_that_is_away_says_nothing_of_the_store(watcher: Watcher) -> None:
    assert watcher.look(Observation(running(), outages=(STORE_GONE,)))
    (line,) = watcher.look(Observation(outages=(RM_GONE,)), 5)
    assert line.startswith("The cluster does not answer")
    assert watcher.look(written(), 5) == [
        "The cluster answers again, after 5 s",
        "The store answers again, after 10 s",
    ]


# ---- the status ----------------------------------------------------------------------------------------------------


def test_a_status_that_does_not_change(watcher: Watcher) -> None:
    assert watcher.look(written()) == []
    assert watcher.look(written(), STATUS_STALE) == []
    assert not watcher.silence.wants_master
    assert watcher.look(written(), 1) == ["The job's status on the store has not changed since then"]
    assert watcher.silence.wants_master
    out = MasterOutOfReach("connection refused")
    assert watcher.look(written(master=out), 1) == [
        "The job's status on the store has not changed since then: "
        "its application master does not answer either (connection refused)"
    ]
    assert watcher.look(written(master=out), 1) == []
    assert watcher.look(written(2000), 10) == [f"The job's status is written again, after {STATUS_STALE + 13:.0f} s"]
    assert not watcher.silence.wants_master


def test_a_master_that_cannot_write_it_says_why(watcher: Watcher) -> None:
    watcher.look(written())
    watcher.look(written(), STATUS_STALE + 1)
    trouble = "status.json has not been written since then: quota"
    seen = written(master=status("RUNNING", troubles=[trouble]))
    assert watcher.look(seen, 1) == [
        "The job's status on the store has not changed since then: "
        "its application master answers, and reports the status directly",
        f"The application master reports: {trouble}",
    ]
    assert watcher.look(seen, 1) == []
    assert isinstance(seen.newest, JobStatus)
    assert seen.newest.troubles == [trouble]


def test_a_reason_that_changes_is_told_once(watcher: Watcher) -> None:
    """A store that refuses each attempt names its temporary file, which has another name each time."""

    def seen(*reasons: str) -> Observation:
        troubles = [f"{name} has not been written since 12:00:01 UTC: {reason}" for name, reason in enumerate(reasons)]
        return written(master=status("RUNNING", troubles=troubles))

    def told(seen: Observation) -> list[str]:
        return [line for line in watcher.look(seen, 1) if "reports" in line]

    watcher.look(written())
    assert len(told(seen("no quota for .a7f3"))) == 1
    assert told(seen("no quota for .09c1")) == []
    assert len(told(seen("no quota for .be52", "no quota for .4411"))) == 1
    assert told(seen()) == []
    assert len(told(seen("no quota for .77aa"))) == 1


def test_a_status_that_never_comes(watcher: Watcher) -> None:
    assert watcher.look(Observation(running())) == []
    assert watcher.look(Observation(running()), STATUS_STALE + 1) == ["The job has no status on the store since then"]
    assert watcher.look(written(), 1) == [f"The job's status is written again, after {STATUS_STALE + 2:.0f} s"]


@pytest.mark.parametrize(
    "seen",
    [
        written(whole=False),  # it was not read again
        attrs.evolve(written(), application=attempt_of("ACCEPTED", 1)),
        attrs.evolve(written(), application=application("FINISHED", final_status=FinalStatus.SUCCEEDED)),
        Observation(running(), status("SUCCEEDED", updated_ms=1000)),
        written(outages=(RM_GONE,)),
    ],
)
def test_when_nothing_new_is_to_be_expected(watcher: Watcher, seen: Observation) -> None:
    watcher.look(written())
    for _ in range(20):
        assert not [line for line in watcher.look(seen, STATUS_STALE) if "status" in line]


def test_the_masters_clock_may_be_any(watcher: Watcher) -> None:
    for second in range(0, 600, 10):
        assert watcher.look(written(5 + second * 1000), 10) == []


# ---- the application master ----------------------------------------------------------------------------------------


def test_a_master_that_was_lost_and_its_successor(watcher: Watcher) -> None:
    assert watcher.look(written()) == []
    waits = attempt_of("ACCEPTED", 2, diagnostics="the queue\n  is full")
    assert watcher.look(Observation(waits, whole=False), 5) == [
        f"The application master was lost: {ID} waits for attempt 2 since then: the queue is full"
    ]
    assert watcher.look(Observation(waits), 5) == []
    assert watcher.look(Observation(running(2), status("RECOVERING", updated_ms=9000)), 5) == [
        "Attempt 2 of the application master has taken over, after 10 s"
    ]


def test_a_successor_that_was_faster_than_the_look(watcher: Watcher) -> None:
    watcher.look(written())
    assert watcher.look(Observation(running(2)), 5) == ["The application master was lost, and attempt 2 has taken over"]
    assert watcher.look(Observation(running(2)), 5) == []


def test_a_successor_that_has_no_name_yet(watcher: Watcher) -> None:
    watcher.look(written())
    waits = attrs.evolve(attempt_of("ACCEPTED", 2), attempt=None)
    (line,) = watcher.look(Observation(waits), 5)
    assert "waits for attempt 2" in line
    assert Watcher().look(Observation(waits)) == []


def test_somebody_who_has_just_begun_to_watch(watcher: Watcher) -> None:
    (line,) = watcher.look(Observation(attempt_of("ACCEPTED", 2)))
    assert "waits for attempt 2" in line
    assert Watcher().look(Observation(running(2))) == []


def test_a_resource_manager_that_was_restarted_has_lost_no_master(watcher: Watcher) -> None:
    """Until the master has registered again, it calls the application accepted."""
    watcher.look(written())
    for number in (1, 1):
        assert watcher.look(Observation(attempt_of("ACCEPTED", number), whole=False), 5) == []


def test_the_end_of_all_attempts_is_told_elsewhere(watcher: Watcher) -> None:
    watcher.look(written())
    watcher.look(Observation(attempt_of("ACCEPTED", 2)), 5)
    assert watcher.look(Observation(attempt_of("FAILED", 2)), 5) == []
    assert watcher.silence.lines == []


def test_another_application_begins_anew(watcher: Watcher) -> None:
    watcher.look(Observation(running(3)))
    watcher.silence.begin_anew()
    assert watcher.look(Observation(attempt_of("ACCEPTED", 1))) == []

"""Who keeps silent about a running job: the cluster, the store, its status or its master. Told in the task's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.runtime.hadoop.ids import ApplicationAttemptId
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.timing import SLOW_ANSWER, STATUS_STALE
from tony_provider.runtime.storage.errors import StorageUnreachable
from tony_provider.watching.contact import Contact, Peer, side_of
from tony_provider.watching.observation import Observation, Outage
from tony_provider.watching.troubles import Troubles

_MOST_CHARACTERS = 500  # of what a cluster or a master says


class _Key(Enum):
    MASTER = auto()
    STATUS = auto()


class Silence:
    """Notices from one observation to the next who does not answer, and tells of it in the log.

    No two clocks are compared: a status is old when it has not changed for long since it was first seen.
    """

    def __init__(
        self, contact: Contact, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._contact = contact
        self._clock = clock
        self._tell = tell
        self._troubles = Troubles(tell, clock)
        self._attempt: int | None = None  # of the application master, that was seen running
        self._written: int | None = None  # when the newest status was written, by its master's clock; 0: there is none
        self._written_seen = 0.0
        self._told_of_master: tuple[str, ...] = ()  # the troubles without their reasons
        self._looked_at = self._awake_since = clock()

    @property
    def lines(self) -> list[str]:
        """The silences that go on now, one line each."""
        return self._troubles.lines

    @property
    def wants_master(self) -> bool:
        """Whether the master should be asked itself: the status on the store does not tell how the job is."""
        return _Key.STATUS in self._troubles or Peer.STORE in self._troubles

    def begin_anew(self) -> None:
        """Forget everything: what was known of the last application is of no use for another one."""
        for key in _Key:
            self._troubles.forget(key)
        self._attempt = self._written = None
        self._told_of_master = ()

    def look(self, seen: Observation | None) -> None:
        """Judge an observation; None: there is no news, and only the time has gone by."""
        now = self._clock()
        if now - self._looked_at > SLOW_ANSWER:
            self._awake_since = now  # a machine that is too busy for us is so for those who answer us, too
        self._looked_at = now
        for side in Peer:
            self._look_at(side, seen)
        if seen is None:
            return
        if seen.application is not None and not any(side_of(each) is Peer.CLUSTER for each in seen.outages):
            self._look_at_master(seen.application)
            if seen.whole and not seen.outages:
                self._look_at_status(seen, seen.application)
        self._tell_of_master(seen)

    def _look_at(self, side: Peer, seen: Observation | None) -> None:
        error = next((each for each in seen.outages if side_of(each) is side), None) if seen is not None else None
        silent = self._contact.silent_since(side)
        if error is not None:
            self._troubles.goes_on(side, f"{side} {_does(error)}", _line(str(error)), since=silent)
        elif silent is not None and self._is_long(silent, said := self._contact.said(side)):
            self._troubles.goes_on(side, f"{side} does not answer", _line(said), since=silent)
        elif seen is not None and (side is Peer.CLUSTER or not seen.outages):  # a cluster in vain: no store was asked
            self._troubles.is_over(side, f"{side} answers again")

    def _is_long(self, silent: float, said: str) -> bool:
        """Whether nobody has answered since ``silent`` though there was time for it, or that is what was ``said``."""
        return self._clock() - (silent if said else max(silent, self._awake_since)) > SLOW_ANSWER

    def _look_at_master(self, application: Application) -> None:
        """An attempt that is later than the last one seen: that was lost."""
        number = _number(application)
        if application.is_final:
            self._troubles.forget(_Key.MASTER)
        elif number is None:  # YARN names none while the next one waits for its container
            if self._attempt is not None and application.state is ApplicationState.ACCEPTED:
                self._waits_for(self._attempt + 1, application)
        elif application.state is ApplicationState.RUNNING:
            if _Key.MASTER in self._troubles:
                self._troubles.is_over(_Key.MASTER, f"Attempt {number} of the application master has taken over")
            elif self._attempt is not None and number > self._attempt:
                self._tell(f"The application master was lost, and attempt {number} has taken over")
            self._attempt = number
        elif number > (self._attempt or 1):
            self._waits_for(number, application)

    def _waits_for(self, attempt: int, application: Application) -> None:
        what = f"The application master was lost: {application.id} waits for attempt {attempt} of it"
        self._troubles.goes_on(_Key.MASTER, what, _line(application.diagnostics)[:_MOST_CHARACTERS])

    def _look_at_status(self, seen: Observation, application: Application) -> None:
        if application.state is not ApplicationState.RUNNING or (seen.status and seen.status.state.is_final):
            self._troubles.forget(_Key.STATUS)
            self._written = None
            return
        written, now = seen.status.updated_ms if seen.status else 0, self._clock()
        if written != self._written:
            self._troubles.is_over(_Key.STATUS, "The job's status is written again")
            self._written, self._written_seen = written, now
        elif now - self._written_seen > STATUS_STALE:
            what = "The job's status on the store has not changed" if written else "The job has no status on the store"
            self._troubles.goes_on(_Key.STATUS, what, self._master_says(seen), since=self._written_seen)

    @staticmethod
    def _master_says(seen: Observation) -> str:
        """Empty before it was asked."""
        if isinstance(seen.master, JobStatus):
            return "its application master is there, and says how the job is itself"
        return f"its application master does not answer either ({seen.master})" if seen.master is not None else ""

    def _tell_of_master(self, seen: Observation) -> None:
        """Tell once of each trouble that the master has itself.

        The text before the colon identifies a trouble: it says what is wrong, and since when. The reason after the
        colon may change with each attempt, because it can contain the name of a temporary file.
        """
        if (status := seen.newest) is None or status.state.is_final:
            return
        found = {trouble.partition(": ")[0]: trouble for trouble in status.troubles}
        for what, trouble in found.items():
            if what not in self._told_of_master:
                self._tell(f"The application master says: {_line(trouble)[:_MOST_CHARACTERS]}")
        self._told_of_master = tuple(found)


def _does(error: Outage) -> str:
    return "does not answer" if isinstance(error, ClusterUnreachable | StorageUnreachable) else "refuses"


def _line(text: str) -> str:
    return " ".join(text.split())


def _number(application: Application) -> int | None:
    """Of the current attempt; None where there is none yet."""
    try:
        return ApplicationAttemptId.parse(application.attempt or "").number
    except ValueError:
        return None

"""Send newer store tokens to a job while it is being watched."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

from tony_provider.cluster.errors import ClusterError
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.protocol.status import JobStatus, TokenLife
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import Observation

_TRIES = 8  # attempts after half of a token's life and before its last quarter
_SHORTEST, _LONGEST = 5.0, 1800.0  # seconds between two attempts


class TokenRefresher:
    """Sends an application a new token after half of the old token's life. Each later master gets one at once.

    A later master starts with the token that the application was submitted with, however old it is.
    """

    def __init__(self) -> None:
        self._next = 0.0  # epoch seconds of the next attempt
        self._attempt: int | None = None  # number of the master that received the last token
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._problem = ""

    def is_due(self, seen: Observation) -> bool:
        """Whether to call ``renew`` now."""
        now, status = _now(seen), seen.newest
        life = status.store_token if status is not None else None
        if life is None or status is None or not seen.runs or now < self._next:
            return False
        return now * 1000 >= life.half_ms or self._has_later_master(seen, status)

    def renew(self, job: TonyJob, seen: Observation) -> bool:
        """Send the job a newer token. Blocks. Return whether that succeeded.

        Cluster and store errors are logged, and the attempt is repeated later.
        """
        life = seen.newest.store_token if seen.newest else None
        self._next = _now(seen) + _pause(life)
        try:
            newer = job.refresh_store_token()
        except (ClusterError, StorageError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._lines.put(f"Could not send {job} a new HDFS token yet: {error}")
            return False
        self._problem, self._attempt = "", seen.application.attempt_number if seen.application else None
        if newer is not None:
            self._next = max(self._next, newer.half_ms / 1000)  # because the status shows the oldest of several tokens
            self._lines.put(f"{job} has a new HDFS token, valid until {moment(newer.until_ms)}")
        return newer is not None

    def lines(self) -> Iterator[str]:
        """Yield the log lines since the last call."""
        while not self._lines.empty():
            yield self._lines.get()

    def _has_later_master(self, seen: Observation, status: JobStatus) -> bool:
        """Whether the status is from an earlier master, and this object has not sent the running master a token."""
        number = seen.application.attempt_number if seen.application else None
        return number is not None and number != self._attempt and number > status.am_attempt


def _now(seen: Observation) -> float:
    """Return the time by the cluster's clock, which also determines when tokens expire."""
    return time.time() + (seen.application.clock_ahead if seen.application else 0.0)


def _pause(life: TokenLife | None) -> float:
    if life is None:
        return _LONGEST
    return min(_LONGEST, max(_SHORTEST, (life.last_quarter_ms - life.half_ms) / 1000 / _TRIES))

"""Keeps track of who was asked and has not answered yet: a call may hang for minutes before it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable


class Peer(StrEnum):
    """The two that a watcher asks; each value is its name in messages."""

    CLUSTER = "The cluster"
    STORE = "The store"


def side_of(error: ClusterError | StorageError) -> Peer:
    """Whose error it is: the cluster's or the store's."""
    return Peer.STORE if isinstance(error, StorageError) else Peer.CLUSTER


class Contact:
    """Keeps, for each peer, since when calls to it have gone unanswered.

    Belongs to one watcher, or to those who share a connection; safe for several threads. Times are the clock's, in
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[Peer, dict[object, float]] = {side: {} for side in Peer}
        self._answered = dict.fromkeys(Peer, float("-inf"))
        self._in_vain: dict[Peer, float] = {}  # asked since the last answer, and given up
        self._said: dict[Peer, str] = {}

    @contextmanager
    def asking(self, side: Peer) -> Iterator[None]:
        """Context manager around one call to ``side``. Any error but that nobody answers counts as an answer.

        An error counts for the server that it is of: a call to the store may have to ask the cluster first.
        """
        question, asked = object(), self._clock()
        with self._lock:
            self._asked[side][question] = asked
        try:
            yield
        except (ClusterUnreachable, StorageUnreachable) as error:
            with self._lock:
                self._in_vain.setdefault(side_of(error), asked)
                self._said[side_of(error)] = str(error)
            raise
        except BaseException:
            self._answers(side)
            raise
        else:
            self._answers(side)
        finally:
            with self._lock:
                del self._asked[side][question]

    def _answers(self, side: Peer) -> None:
        with self._lock:
            self._answered[side] = self._clock()
            self._in_vain.pop(side, None)
            self._said.pop(side, None)

    def silent_since(self, side: Peer) -> float | None:
        """Since when ``side`` has not answered, by the clock; None while nobody waits in vain.

        Where other calls are answered meanwhile, it is one call that is slow.
        """
        with self._lock:
            asked = [*self._asked[side].values(), *([self._in_vain[side]] if side in self._in_vain else [])]
            return max(min(asked), self._answered[side]) if asked else None

    def said(self, side: Peer) -> str:
        """The message of the last failed call: why ``side`` does not answer. Empty where that is not known."""
        with self._lock:
            return self._said.get(side, "")

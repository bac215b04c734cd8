"""The output of a running task, fetched piece by piece."""

from __future__ import annotations

from tony_provider.cluster.errors import MasterOutOfReach
from tony_provider.hooks.tony import TonyHook

TAIL = 64 << 10  # bytes that are asked for at once
_SECONDS = 10.0  # that its master may take


class LiveLog:
    """Reads what one running task prints, from one look to the next.

    Masters tell the end of a log, not what has come since: where the last look ended is looked for in it.
    """

    def __init__(self, hook: TonyHook, application_id: str, task: str) -> None:
        self._hook = hook
        self._application_id = application_id
        self.task = task
        self.problem = ""  # why the last look gave nothing
        self._seen = b""

    def new(self) -> bytes:
        """What was printed since the last look; the first gives the end of it all. Raises ClusterAuthError."""
        try:
            tail = self._hook.task_log(self._application_id, self.task, TAIL, seconds=_SECONDS)
        except MasterOutOfReach as error:
            self.problem = str(error)
            return b""
        self.problem = ""
        before, self._seen = self._seen, tail
        return since(before, tail)

    def rest(self, kept: bytes) -> bytes:
        """What was printed since the last look, from ``kept``: the log that was kept when the task ended."""
        return since(self._seen, kept)


def since(before: bytes, tail: bytes) -> bytes:
    """The part of ``tail`` that comes after the end of ``before``.

    Both are ends of one log that grows, each from a line's start. They overlap by the longest end of ``before`` that
    ``tail`` begins with: lines that repeat themselves fit in several ways. Where they do not overlap, much was printed
    meanwhile, or it is another log: all of it is new.
    """
    place = max(0, len(before) - len(tail))
    while (place := before.find(tail[:1], place)) >= 0:
        if tail.startswith(before[place:]):
            return tail[len(before) - place :]
        place += 1
    return tail

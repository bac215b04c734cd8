"""What one running task prints, read piece by piece, none of it twice."""

from __future__ import annotations

import attrs

from tony_provider.cluster.errors import MasterOutOfReach, NotServed
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol import output_piece

_CONTAINERS = 5  # of a task, that are asked for at a look, at most, beside the one that was read last
TAIL = 64 << 10  # bytes that a master which knows no pieces is asked for at once


@attrs.frozen
class OutputPosition:
    """How much of a task's output is known: of which of its containers, and how many bytes of that."""

    attempt: int | None = None  # the container's number, from 1; None: whichever is the newest
    offset: int = 0

    @classmethod
    def end(cls) -> OutputPosition:
        """Where nothing of what is there already is wanted."""
        return cls(None, output_piece.END)


@attrs.frozen
class Printed:
    """What a task has printed between two looks."""

    data: bytes
    missed: int = 0  # bytes that were printed before it and are not to be had
    new_container: bool = False  # it begins what another container prints
    skipped: int = 0  # containers before that one of which nothing was read: there were too many


class OutputFollower:
    """Reads what one running task prints, from one look to the next. Blocks while it looks.

    :param older_masters: whether a job of an older release is followed too, whose master tells only the end of a log
        and masks no secrets in it.
    """

    def __init__(
        self,
        hook: TonyHook,
        application_id: str,
        task: str,
        position: OutputPosition | None = None,
        *,
        seconds: float,
        older_masters: bool = False,
    ) -> None:
        self.hook = hook
        self._application_id = application_id
        self.task = task
        self.position = position or OutputPosition()
        self.problem = ""  # why the last look gave nothing
        self._seconds = seconds  # that the master may take
        self._older_masters = older_masters
        self._seen = b""  # by an older master
        self._skipped = 0  # containers, as long as nothing was read of a later one

    def new(self) -> list[Printed]:
        """What was printed since the last look; the first gives what comes after the position that it began with.

        Raises ClusterAuthError, UnexpectedAnswer; NotServed for a job of an older release that is not to be followed.
        """
        self.problem = ""
        found: list[Printed] = []
        try:
            self._read(found)
        except NotServed:
            if not self._older_masters:
                raise
            return self._of_older_master()
        except MasterOutOfReach as error:
            self.problem = str(error)
        return found

    def _read(self, found: list[Printed]) -> None:
        """The rest of the container that was read last, then what newer ones have printed, the last few of them.

        What comes after that is the next look's: a job's own master could name newer ones for ever.
        """
        for _ in range(_CONTAINERS + 1):
            before = self.position
            answer = self.hook.task_output(
                self._application_id, self.task, before.attempt, before.offset, seconds=self._seconds
            )
            self.problem = answer.problem
            self.position = OutputPosition(answer.attempt, answer.end)
            is_at_end = before.offset == output_piece.END
            missed = 0 if is_at_end else answer.start - before.offset
            if answer.data or missed or self._skipped:
                is_new = before.offset == 0 and answer.attempt > 1
                found.append(Printed(answer.data, missed, new_container=is_new, skipped=self._skipped))
                self._skipped = 0
            if answer.attempt >= answer.newest:
                return
            following = max(answer.attempt + 1, answer.newest - _CONTAINERS + 1)
            self._skipped = following - answer.attempt - 1
            self.position = OutputPosition(following)

    def _of_older_master(self) -> list[Printed]:
        try:
            tail = self.hook.task_log(self._application_id, self.task, TAIL, seconds=self._seconds)
        except MasterOutOfReach as error:
            self.problem = str(error)
            return []
        before, self._seen = self._seen, tail
        new = since(before, tail)
        return [Printed(new)] if new else []

    @property
    def is_of_older_master(self) -> bool:
        """Whether what was seen came from a master that knows no pieces."""
        return bool(self._seen)

    def rest(self, kept: bytes) -> bytes:
        """Of a log that an older master has shown: what ``kept``, its end, has beyond that."""
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

"""What a task prints, made into lines for a log that is not its own: whole, printable, short, and not too many."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from tony_provider.cluster.errors import ClusterAuthError, ClusterError, MasterOutOfReach, NotServed
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import without_control_sequences
from tony_provider.runtime.protocol import http_messages
from tony_provider.runtime.protocol.status import JobStatus, TaskState

LINES_PER_SECOND = 10  # on average
BURST_LINES = 100  # lines, after a while of fewer
MANY = 5_000  # lines after which there is one a minute
MAX_LINES = 10_000  # lines in all
MAX_LINE_LENGTH = 300  # characters of a line; long ones get lost on their way from a triggerer to the task's log
BAR_SECONDS = 30.0  # between two states of a line that is drawn again and again

_AT_A_TIME = 1_000  # lines of one piece that are looked at: many more than are shown of it
_SPARSE_SECONDS = 60.0
_HELD = 4 * MAX_LINE_LENGTH + 16  # bytes of a line that are looked at
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]+")


class OutputLines:
    """Turns the output of one task, which comes in pieces, into a bounded number of lines.

    Where more was printed than may be shown, the newest lines are, below one that says how much is left out. Of a line
    that is drawn again and again, such as a progress bar, the state at its end is shown, and meanwhile one now and
    then. Times are any clock's, in seconds.
    """

    def __init__(self, at_once: int = BURST_LINES) -> None:
        self._at_once = at_once
        self._new: deque[str] = deque(maxlen=at_once)
        self._left_out = 0  # lines
        self._missed = 0  # bytes
        self._skipped = 0  # containers
        self._line = b""  # the beginning of one that has no end yet, or the last state of it
        self._bar = ""  # the state of it that was shown
        self._bar_at = float("-inf")
        self._allowed = float(at_once)
        self._taken_at: float | None = None
        self._shown = 0
        self._begun = 0  # bytes of a line that has no end yet

    @property
    def is_full(self) -> bool:
        """Whether it will show nothing more."""
        return self._shown >= MAX_LINES

    @property
    def pending(self) -> int:
        """Bytes of a line that has no end yet, and whose newest state was not shown."""
        return 0 if self._bar and self._bar == displayed_line(self._line) else self._begun

    @property
    def waits(self) -> bool:
        """Whether something of what was added is still to be shown."""
        return bool(self._new or self._missed or self._left_out or self._skipped)

    def add(self, data: bytes, missed: int = 0, skipped: int = 0) -> None:
        """Add what was printed; ``missed`` bytes before it, or all of ``skipped`` containers, are not to be had."""
        self._skipped += skipped
        if missed:
            self._missed += missed + self._begun
            self._line, self._begun = b"", 0
        *whole, rest = data.split(b"\n")
        if len(whole) > _AT_A_TIME:
            self._leave_out(whole[:-_AT_A_TIME])
            del whole[:-_AT_A_TIME]
        for line in whole:
            self._line = _joined(self._line, line)
            self._end_line()
        self._line = _joined(self._line, rest)
        self._begun = (self._begun if not whole else 0) + len(rest)

    def end(self) -> None:
        """Nothing more comes of the line that has no end yet."""
        if self._line:
            self._end_line()

    def take(self, now: float) -> list[str]:
        """The lines to show now."""
        self._add_bar(now)
        self._refill(now)
        most = min(int(self._allowed), MAX_LINES - self._shown)
        if not self.waits or most < 1:
            return []
        while len(self._new) > most:
            self._new.popleft()
            self._left_out += 1
        lines = list(self._new)
        self._new.clear()
        self._allowed -= len(lines)
        self._shown += len(lines)
        return [*self._gap(), *lines, *self._last_word(len(lines))]

    def _leave_out(self, lines: list[bytes]) -> None:
        """Lines that newer ones would push out: counted, and not made into text."""
        self._left_out += sum(1 for line in [self._line + lines[0], *lines[1:]] if line.strip())
        self._line, self._begun, self._bar = b"", 0, ""

    def _end_line(self) -> None:
        text, self._line, self._begun = displayed_line(self._line), b"", 0
        if not text or text == self._bar:
            self._bar = ""
            return
        self._bar = ""
        if len(self._new) == self._at_once:
            self._left_out += 1
        self._new.append(text)

    def _add_bar(self, now: float) -> None:
        if b"\r" not in self._line or now - self._bar_at < BAR_SECONDS:
            return
        text = displayed_line(self._line)
        if text and text != self._bar and not self._new:
            self._bar, self._bar_at = text, now
            self._new.append(text)

    def _refill(self, now: float) -> None:
        since = now - self._taken_at if self._taken_at is not None else 0.0
        self._taken_at = now
        if self._shown < MANY:
            self._allowed = min(self._at_once, self._allowed + since * LINES_PER_SECOND)
        else:
            self._allowed = min(1.0, self._allowed + since / _SPARSE_SECONDS)

    def _gap(self) -> list[str]:
        said = [f"all of {count(self._skipped, 'container')}"] if self._skipped else []
        said += [size(self._missed)] if self._missed else []
        said += [f"{self._left_out:,} lines"] if self._left_out else []
        self._left_out = self._missed = self._skipped = 0
        return [f"… {' and '.join(said)} left out"] if said else []

    def _last_word(self, new: int) -> list[str]:
        if self.is_full:
            return [f"… nothing more is shown here after {MAX_LINES:,} lines, but the end"]
        if self._shown >= MANY > self._shown - new:
            return [f"… after {MANY:,} lines there is one a minute from here on"]
        return []


def displayed_line(line: bytes, longest: int = MAX_LINE_LENGTH) -> str:
    """A line as a terminal would show it at last: no colours, no characters that cannot be printed, cut where long.

    ``longest``: characters.
    """
    state = line.rstrip(b"\r\b").rpartition(b"\r")[2]  # Keras goes back before it draws its bar again
    text = without_control_sequences(state.decode("utf-8", "replace"))
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).expandtabs().rstrip()
    return text if len(text) <= longest else f"{text[:longest]}… (cut)"


def _joined(line: bytes, more: bytes) -> bytes:
    """A line and what comes after it, as far as it can still show: the last that was drawn over it."""
    joined = line + more
    drawn = joined.rstrip(b"\r")
    state = drawn.rpartition(b"\r")[2]
    again = b"\r" if len(state) < len(joined) and b"\r" in joined else b""
    if not again:
        return state[:_HELD]
    return again + state[:_HELD] + (b"\r" if len(drawn) < len(joined) else b"")


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
        return cls(None, http_messages.OUTPUT_END)


@attrs.frozen
class OutputChunk:
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

    def new(self) -> list[OutputChunk]:
        """What was printed since the last look; the first gives what comes after the position that it began with.

        Raises ClusterAuthError, UnexpectedAnswer; NotServed for a job of an older release that is not to be followed.
        """
        self.problem = ""
        found: list[OutputChunk] = []
        try:
            self._read(found)
        except NotServed:
            if not self._older_masters:
                raise
            return self._of_older_master()
        except MasterOutOfReach as error:
            self.problem = str(error)
        return found

    def _read(self, found: list[OutputChunk]) -> None:
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
            is_at_end = before.offset == http_messages.OUTPUT_END
            missed = 0 if is_at_end else answer.start - before.offset
            if answer.data or missed or self._skipped:
                is_new = before.offset == 0 and answer.attempt > 1
                found.append(OutputChunk(answer.data, missed, new_container=is_new, skipped=self._skipped))
                self._skipped = 0
            if answer.attempt >= answer.newest:
                return
            following = max(answer.attempt + 1, answer.newest - _CONTAINERS + 1)
            self._skipped = following - answer.attempt - 1
            self.position = OutputPosition(following)

    def _of_older_master(self) -> list[OutputChunk]:
        try:
            tail = self.hook.task_log(self._application_id, self.task, TAIL, seconds=self._seconds)
        except MasterOutOfReach as error:
            self.problem = str(error)
            return []
        before, self._seen = self._seen, tail
        new = after_overlap(before, tail)
        return [OutputChunk(new)] if new else []

    @property
    def is_of_older_master(self) -> bool:
        """Whether what was seen came from a master that knows no pieces."""
        return bool(self._seen)

    def rest(self, kept: bytes) -> bytes:
        """Of a log that an older master has shown: what ``kept``, its end, has beyond that."""
        return after_overlap(self._seen, kept)


def after_overlap(before: bytes, tail: bytes) -> bytes:
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


SECONDS = 5.0  # that a master may take for one answer
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds before a master that had no answer is asked again


@attrs.frozen
class OutputSelection:
    """Whose output is to be shown in the task's log."""

    tasks: list[str] = attrs.field(factory=list)  # such as evaluator:0; empty: the leader's, chief or rank 0
    fresh_until: float | None = None  # epoch seconds; who begins later shows what is printed from then on

    def of(self, status: JobStatus) -> list[str]:
        """The names of the tasks; none while they are not known."""
        return self.tasks or ([status.leader] if status.leader else [])


@attrs.define(eq=False)
class _ShownTask:
    follower: OutputFollower
    lines: OutputLines = attrs.field(factory=OutputLines)


class OutputDisplay:
    """Reads what some tasks of one job print, and makes lines of it for the task's log.

    ``look`` and ``lines`` may be called in two threads, each in one at a time.

    If the wish is not fresh any more at the first look, what is there already is not shown.
    """

    def __init__(
        self,
        application_id: str,
        wish: OutputSelection,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application_id = application_id
        self._wish = wish
        self._at_end: bool | None = None  # whether to begin at the end of the output; None before the first look
        self._clock = clock
        self._tasks: dict[str, _ShownTask] = {}
        self._lines: deque[str | tuple[str, OutputPosition]] = deque()  # and how far a task's output is shown by them
        self._told: dict[str, OutputPosition] = {}
        self._began = False
        self._off = False
        self._pause = 0.0
        self._next = float("-inf")

    def is_due(self, status: JobStatus | None) -> bool:
        """Whether there may be something to show, and the master is to be asked for it."""
        if self._off or status is None or status.state.is_final or self._clock() < self._next:
            return False
        return status.generation > 0 and bool(self._wish.of(status))

    def look(self, hook: TonyHook, status: JobStatus) -> None:
        """Ask the job's master for what was printed since the last look.

        Blocks for SECONDS at most for each task. Raises nothing of the cluster's.
        """
        if self._at_end is None:
            until = self._wish.fresh_until
            self._at_end = until is not None and hook.now() > until
        running = self._running(status)
        if not running:
            self._next = self._clock() + FIRST_PAUSE
            return
        try:
            problems = [self._look_at(hook, task) for task in running]
        except (NotServed, ClusterAuthError) as error:
            self._off = True
            older = "the job's master is of an older release" if isinstance(error, NotServed) else str(error)
            self._lines.append(f"The output of the job's tasks is not shown here: {older}")
            return
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE) if any(problems) else 0.0
        self._next = self._clock() + self._pause
        self._off = bool(self._tasks) and all(each.lines.is_full for each in self._tasks.values())

    def lines(self) -> list[str]:
        """The lines to log, those since the last call."""
        found = []
        while self._lines:
            line = self._lines.popleft()
            if isinstance(line, str):
                found.append(line)
            else:
                self._told[line[0]] = line[1]
        return found

    def told(self) -> dict[str, OutputPosition]:
        """Up to where each task's output is in the lines that ``lines`` has given."""
        return dict(self._told)

    def _running(self, status: JobStatus) -> list[str]:
        begun = {task.name for task in status.tasks if task.state is TaskState.RUNNING or task.name in self._tasks}
        return [name for name in self._wish.of(status) if name in begun]

    def _look_at(self, hook: TonyHook, name: str) -> str:
        """What keeps the task's output from being seen; empty: nothing."""
        task = self._tasks.get(name)
        if task is None:
            begin = OutputPosition.end() if self._at_end else None
            follower = OutputFollower(hook, self._application_id, name, begin, seconds=SECONDS)
            task = self._tasks[name] = _ShownTask(follower)
        follower, lines = task.follower, task.lines
        follower.hook = hook
        try:
            pieces = follower.new()
        except (NotServed, ClusterAuthError):
            raise
        except ClusterError as error:
            return str(error)
        for piece in pieces:
            if piece.new_container:
                lines.end()
            lines.add(piece.data, piece.missed, piece.skipped)
        self._show(name, lines.take(self._clock()))
        position = follower.position
        if not lines.waits and position.attempt is not None:
            self._lines.append((name, attrs.evolve(position, offset=position.offset - lines.pending)))
        return follower.problem

    def _show(self, name: str, lines: Sequence[str]) -> None:
        if lines and not self._began:
            self._began = True
            all_of_it = f"airflow tony logs {self._application_id} --task {name}"
            self._lines.append(f"What {name} prints, {LINES_PER_SECOND} lines a second at most; all of it: {all_of_it}")
        self._lines.extend(prefixed(name, lines))


def prefixed(task: str, lines: Sequence[str]) -> list[str]:
    """Lines of a task's output as they are told apart from our own."""
    return [f"{task} | {line}" for line in lines]


def output_display(application_id: str, wish: OutputSelection | None) -> OutputDisplay | None:
    """What shows the output that is wished for; None: none is."""
    return None if wish is None else OutputDisplay(application_id, wish)


ShownPositions = Mapping[str, OutputPosition]
"""By the name of a task: up to where its output is in the task's log already."""

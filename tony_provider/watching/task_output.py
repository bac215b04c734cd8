"""Show the output of a job's tasks in a task log of Airflow.

``OutputLines`` turns output into complete, printable lines of limited length and number. ``OutputFollower`` reads the
output of one running task from its application master. ``OutputDisplay`` combines both for the selected tasks.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from tony_provider.cluster.errors import ClusterAuthError, ClusterError, MasterOutOfReach
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import without_control_sequences
from tony_provider.runtime.protocol import http_messages
from tony_provider.runtime.protocol.status import JobStatus, TaskState

LINES_PER_SECOND = 10  # average limit for one task
BURST_LINES = 100  # burst size after a time with fewer lines
MANY = 5_000  # after this total number of lines, one line per minute is shown
MAX_LINES = 10_000  # maximum lines in all
MAX_LINE_LENGTH = 300  # characters of a line; longer lines may get lost between a triggerer and the task's log
BAR_SECONDS = 30.0  # seconds between two states of a line that is redrawn, such as a progress bar

_AT_A_TIME = 1_000  # maximum lines of one chunk that are processed; fewer are shown
_SPARSE_SECONDS = 60.0
_HELD = 4 * MAX_LINE_LENGTH + 16  # maximum bytes of a line that are processed
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]+")


class OutputLines:
    """Turns the output of one task, which arrives in chunks, into a bounded number of lines.

    If there are more lines than may be shown, the newest are shown, below a line with the omitted amount. A line that
    is redrawn, such as a progress bar, is shown in its last state, and from time to time while it changes. All times
    are seconds of one clock.
    """

    def __init__(self, at_once: int = BURST_LINES) -> None:
        self._at_once = at_once
        self._new: deque[str] = deque(maxlen=at_once)
        self._left_out = 0  # omitted lines that are not reported yet
        self._missed = 0  # unavailable bytes that are not reported yet
        self._skipped = 0  # containers that were not read and are not reported yet
        self._line = b""  # the start of an incomplete line, or its last drawn state
        self._bar = ""  # last displayed state of the incomplete line
        self._bar_at = float("-inf")
        self._allowed = float(at_once)
        self._taken_at: float | None = None
        self._shown = 0
        self._begun = 0  # length of the incomplete line in bytes, including bytes that ``_line`` no longer has

    @property
    def is_full(self) -> bool:
        """Whether the line limit is reached."""
        return self._shown >= MAX_LINES

    @property
    def pending(self) -> int:
        """Bytes of the incomplete line, or 0 if its newest state was shown."""
        return 0 if self._bar and self._bar == displayed_line(self._line) else self._begun

    @property
    def waits(self) -> bool:
        """Whether any added output is still to be shown."""
        return bool(self._new or self._missed or self._left_out or self._skipped)

    def add(self, data: bytes, missed: int = 0, skipped: int = 0) -> None:
        """Add output. ``missed`` bytes before it, or all output of ``skipped`` containers, are unavailable."""
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
        """End the incomplete line, because no more output of it will follow."""
        if self._line:
            self._end_line()

    def take(self, now: float) -> list[str]:
        """Return the lines to show now."""
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
        """Count lines that newer lines would replace, without converting them to text."""
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
            return [f"… output after {MAX_LINES:,} lines is not shown here, except for the end"]
        if self._shown >= MANY > self._shown - new:
            return [f"… after {MANY:,} lines, only one line per minute is shown"]
        return []


def displayed_line(line: bytes, longest: int = MAX_LINE_LENGTH) -> str:
    """Return a line as a terminal would finally show it: without colours or unprintable characters, cut if too long.

    ``longest`` is in characters.
    """
    state = line.rstrip(b"\r\b").rpartition(b"\r")[2]  # Keras returns to the start before it redraws its bar
    text = without_control_sequences(state.decode("utf-8", "replace"))
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).expandtabs().rstrip()
    return text if len(text) <= longest else f"{text[:longest]}… (cut)"


def _joined(line: bytes, more: bytes) -> bytes:
    """Append ``more`` to a line, and keep only the visible part, which is the last state that was drawn."""
    joined = line + more
    drawn = joined.rstrip(b"\r")
    state = drawn.rpartition(b"\r")[2]
    again = b"\r" if len(state) < len(joined) and b"\r" in joined else b""
    if not again:
        return state[:_HELD]
    return again + state[:_HELD] + (b"\r" if len(drawn) < len(joined) else b"")


_CONTAINERS = 5  # maximum containers of a task per read, in addition to the last one read


@attrs.frozen
class OutputPosition:
    """A position in a task's output: the container, and the bytes of the container's output before the position."""

    attempt: int | None = None  # the container's number, from 1; None for the newest
    offset: int = 0

    @classmethod
    def end(cls) -> OutputPosition:
        """Return the position that skips all existing output."""
        return cls(None, http_messages.OUTPUT_END)


@attrs.frozen
class OutputChunk:
    """New output of one container, as found by one read."""

    data: bytes
    missed: int = 0  # unavailable bytes before ``data``
    new_container: bool = False  # True if ``data`` is the start of the output of a second or later container
    skipped: int = 0  # containers before this one that were not read, because there were too many


class OutputFollower:
    """Reads the output of one running task incrementally. Blocks during a read."""

    def __init__(self, job: TonyJob, task: str, position: OutputPosition | None = None, *, seconds: float) -> None:
        self.job = job
        self.task = task
        self.position = position or OutputPosition()
        self.problem = ""  # why the last read returned nothing
        self._seconds = seconds  # seconds within which the master must answer a request
        self._skipped = 0  # containers that were skipped since the last output

    def new(self) -> list[OutputChunk]:
        """Return the output since the last read. The first read starts at the initial position.

        If the master is unreachable, set ``problem``. Raises ClusterAuthError, UnexpectedAnswer.
        """
        self.problem = ""
        found: list[OutputChunk] = []
        try:
            self._read(found)
        except MasterOutOfReach as error:
            self.problem = str(error)
        return found

    def _read(self, found: list[OutputChunk]) -> None:
        """Read the rest of the last container, then the output of the last few newer containers.

        The number of containers per read is limited, because a job's master could report newer containers forever. The
        next read continues.
        """
        for _ in range(_CONTAINERS + 1):
            before = self.position
            answer = self.job.output(self.task, before.attempt, before.offset, seconds=self._seconds)
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


@attrs.frozen
class KeptOutput:
    """The output in the kept log of a task's newest container, after the part that was shown."""

    data: bytes
    shown: int  # bytes of this log that were shown before
    missed: int  # unavailable bytes between the shown part and ``data``
    end: int  # bytes of output up to the end of ``data``


def kept_output(job: TonyJob, task: str, shown: OutputPosition | None, limit: int) -> KeptOutput | None:
    """Return at most the last ``limit`` bytes that follow ``shown``, or None if no log of the task was kept.

    Raises ClusterError, StorageError.
    """
    newest = job.newest_log(task)
    if newest is None:
        return None
    is_same = shown is not None and shown.attempt and contract.log_name(task, shown.attempt) == newest.name
    after = shown.offset if shown is not None and is_same else 0
    piece = newest.after(after, limit)
    return KeptOutput(piece.data, after, piece.start - after, piece.end)


SECONDS = 5.0  # time limit of a master for one answer
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds until the next request to a master that gave no answer


@attrs.frozen
class OutputSelection:
    """Which tasks' output to show in the task's log."""

    tasks: list[str] = attrs.field(factory=list)  # such as evaluator:0; empty for the leader, chief or rank 0
    fresh_until: float | None = None  # epoch seconds; a first read after this time skips existing output; None: no skip

    def of(self, status: JobStatus) -> list[str]:
        """Return the names of the tasks, or an empty list while they are unknown."""
        return self.tasks or ([status.leader] if status.leader else [])


@attrs.define(eq=False)
class _ShownTask:
    follower: OutputFollower
    lines: OutputLines = attrs.field(factory=OutputLines)


class OutputDisplay:
    """Reads the output of selected tasks of one job, and turns it into lines for the task's log.

    One thread may call ``look`` while another calls ``lines``.

    If the first read is after the selection's ``fresh_until``, existing output is not shown.
    """

    def __init__(self, wish: OutputSelection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._wish = wish
        self._at_end: bool | None = None  # whether to start at the end of the output; None before the first read
        self._clock = clock
        self._tasks: dict[str, _ShownTask] = {}
        self._lines: deque[str | tuple[str, OutputPosition]] = deque()  # lines, and the position of a task after them
        self._told: dict[str, OutputPosition] = {}
        self._began = False
        self._off = False
        self._pause = 0.0
        self._next = float("-inf")

    def is_due(self, status: JobStatus | None) -> bool:
        """Whether to query the master now, because there may be output to show."""
        if self._off or status is None or status.state.is_final or self._clock() < self._next:
            return False
        return status.generation > 0 and bool(self._wish.of(status))

    def look(self, job: TonyJob, status: JobStatus) -> None:
        """Query the job's master for the output since the last read.

        Blocks for at most SECONDS per task. Handles cluster errors.
        """
        if self._at_end is None:
            until = self._wish.fresh_until
            self._at_end = until is not None and job.hook.now() > until
        running = self._running(status)
        if not running:
            self._next = self._clock() + FIRST_PAUSE
            return
        try:
            problems = [self._look_at(job, task) for task in running]
        except ClusterAuthError as error:
            self._off = True
            self._lines.append(f"The output of the job's tasks is not shown here: {error}")
            return
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE) if any(problems) else 0.0
        self._next = self._clock() + self._pause
        self._off = bool(self._tasks) and all(each.lines.is_full for each in self._tasks.values())

    def lines(self) -> list[str]:
        """Return the lines to log since the last call."""
        found = []
        while self._lines:
            line = self._lines.popleft()
            if isinstance(line, str):
                found.append(line)
            else:
                self._told[line[0]] = line[1]
        return found

    def told(self) -> dict[str, OutputPosition]:
        """Return for each task the position up to which ``lines`` has returned its output."""
        return dict(self._told)

    def _running(self, status: JobStatus) -> list[str]:
        begun = {task.name for task in status.tasks if task.state is TaskState.RUNNING or task.name in self._tasks}
        return [name for name in self._wish.of(status) if name in begun]

    def _look_at(self, job: TonyJob, name: str) -> str:
        """Read a task's output. Return the problem that prevents it, or an empty string."""
        task = self._tasks.get(name)
        if task is None:
            begin = OutputPosition.end() if self._at_end else None
            follower = OutputFollower(job, name, begin, seconds=SECONDS)
            task = self._tasks[name] = _ShownTask(follower)
        follower, lines = task.follower, task.lines
        follower.job = job
        try:
            pieces = follower.new()
        except ClusterAuthError:
            raise
        except ClusterError as error:
            return str(error)
        for piece in pieces:
            if piece.new_container:
                lines.end()
            lines.add(piece.data, piece.missed, piece.skipped)
        self._show(job, name, lines.take(self._clock()))
        position = follower.position
        if not lines.waits and position.attempt is not None:
            self._lines.append((name, attrs.evolve(position, offset=position.offset - lines.pending)))
        return follower.problem

    def _show(self, job: TonyJob, name: str, lines: Sequence[str]) -> None:
        if lines and not self._began:
            self._began = True
            all_of_it = f"airflow tony logs {job} --task {name}"
            self._lines.append(
                f"Showing output of {name} (at most {LINES_PER_SECOND} lines/s). Full output: {all_of_it}"
            )
        self._lines.extend(prefixed(name, lines))


def prefixed(task: str, lines: Sequence[str]) -> list[str]:
    """Prefix lines with the task's name, to distinguish a task's output from the lines of this provider."""
    return [f"{task} | {line}" for line in lines]


def output_display(wish: OutputSelection | None) -> OutputDisplay | None:
    """Return the display for the selected output, or None if no output is selected."""
    return None if wish is None else OutputDisplay(wish)


ShownPositions = Mapping[str, OutputPosition]
"""By the name of a task: up to where its output is in the task's log already."""

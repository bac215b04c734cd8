"""What a task prints, made into lines for a log that is not its own: whole, printable, short, and not too many."""

from __future__ import annotations

import re
from collections import deque

from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.text import without_orders

LINES_PER_SECOND = 10  # on average
AT_ONCE = 100  # lines, after a while of fewer
MANY = 5_000  # lines after which there is one a minute
MOST = 10_000  # lines in all
LONGEST = 300  # characters of a line; long ones get lost on their way from a triggerer to the task's log
BAR_SECONDS = 30.0  # between two states of a line that is drawn again and again

_AT_A_TIME = 1_000  # lines of one piece that are looked at: many more than are shown of it
_SPARSE_SECONDS = 60.0
_HELD = 4 * LONGEST + 16  # bytes of a line that are looked at
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]+")


class OutputLines:
    """Turns the output of one task, which comes in pieces, into a bounded number of lines.

    Where more was printed than may be shown, the newest lines are, below one that says how much is left out. Of a line
    that is drawn again and again, such as a progress bar, the state at its end is shown, and meanwhile one now and
    then. Times are any clock's, in seconds.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
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
        return self._shown >= MOST

    @property
    def pending(self) -> int:
        """Bytes of a line that has no end yet, and whose newest state was not shown."""
        return 0 if self._bar and self._bar == shown(self._line) else self._begun

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
        most = min(int(self._allowed), MOST - self._shown)
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
        text, self._line, self._begun = shown(self._line), b"", 0
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
        text = shown(self._line)
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
            return [f"… nothing more is shown here after {MOST:,} lines, but the end"]
        if self._shown >= MANY > self._shown - new:
            return [f"… after {MANY:,} lines there is one a minute from here on"]
        return []


def shown(line: bytes, longest: int = LONGEST) -> str:
    """A line as a terminal would show it at last: no colours, no characters that cannot be printed, cut where long.

    ``longest``: characters.
    """
    state = line.rstrip(b"\r\b").rpartition(b"\r")[2]  # Keras goes back before it draws its bar again
    text = without_orders(state.decode("utf-8", "replace"))
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

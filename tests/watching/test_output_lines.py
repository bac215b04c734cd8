"""What of a task's output is shown, and how: pieces of bytes in, lines out."""

from __future__ import annotations

import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.watching import task_output
from tony_provider.watching.task_output import (
    BAR_SECONDS,
    BURST_LINES,
    LINES_PER_SECOND,
    MANY,
    MAX_LINE_LENGTH,
    MAX_LINES,
    OutputLines,
    displayed_line,
)


def all_of(data: bytes, cuts: list[int]) -> list[str]:
    """The lines of data that comes in pieces, much later each."""
    lines, found, now = OutputLines(), [], 0.0
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        lines.add(data[start:end])
        found += lines.take(now)
        now += 0.01  # too short for the states of a line that is drawn again
    lines.end()
    return found + lines.take(now)


pieces = st.lists(
    st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\x1b[31m", "ü".encode(), b"10%", b"\x00\xff", b" "]), max_size=40
).map(b"".join)


@given(pieces.filter(lambda data: b"\r" not in data.replace(b"\r\n", b"")), st.lists(st.integers(0, 200), max_size=5))
def test_how_it_comes_in_pieces_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    assert all_of(data, cuts) == all_of(data, [])


# Python takes them for formats, and not for printable: signs of scripts, of music and of shorthand.
SIGNS = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a]"
)


def is_shown(line: str) -> bool:
    """Whether all of it is printable, or such a sign, or without a meaning but that of some font."""
    return all(
        letter.isprintable() or unicodedata.category(letter) in ("Co", "Cn") or SIGNS.match(letter) for letter in line
    )


def test_what_is_hidden_or_turns_the_text_is_not_shown() -> None:
    assert not any(is_shown(letter) for letter in "\x1b\xad\u200b\u202e\u2028\ufeff")


@given(st.lists(st.tuples(st.binary(max_size=2000), st.integers(0, 3), st.floats(0, 50)), max_size=30))
def test_whatever_comes_is_bounded_printable_and_short(steps: list[tuple[bytes, int, float]]) -> None:
    lines, now = OutputLines(), 0.0
    for data, missed, pause in steps:
        now += pause
        lines.add(data, missed)
        taken = lines.take(now)
        assert len(taken) <= BURST_LINES + 2
        assert all(is_shown(line) and len(line) <= MAX_LINE_LENGTH + 20 for line in taken)
        assert lines.pending >= 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain", "plain"),
        (b"windows\r", "windows"),
        (b"\r 10%|#\r 20%|##\r 30%|###", " 30%|###"),
        (b"  5%\r 10%\r", " 10%"),
        (b" 1/29 loss: 2.4\b\b\b\b\r 2/29 loss: 2.3\b\b\b\b", " 2/29 loss: 2.3"),
        (b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07no", "error: no"),
        (b"a\tb", "a       b"),
        ("\u202eno\u2066w\u200b\ufeff".encode(), "now"),
        (b"a\x1b]0;no end", "a"),
        (b"\x00\x01\x02text\xff\xfe", "\ufffdtext\ufffd"),
        (b"x" * (MAX_LINE_LENGTH + 1), "x" * MAX_LINE_LENGTH + "… (cut)"),
        (b"x" * MAX_LINE_LENGTH, "x" * MAX_LINE_LENGTH),
        (b"\r\r", ""),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_at_last(line: bytes, text: str) -> None:
    assert displayed_line(line) == text
    lines = OutputLines()
    for place in range(0, len(line), 7):
        lines.add(line[place : place + 7])
    lines.add(b"\n")
    assert lines.take(0.0) == ([text] if text else [])


def test_of_more_than_may_be_shown_the_newest_are() -> None:
    lines = OutputLines()
    for number in range(100_000):
        lines.add(b"line %d\n" % number)
    taken = lines.take(0.0)
    assert taken == [f"… {100_000 - BURST_LINES:,} lines left out", *(f"line {99_900 + n}" for n in range(BURST_LINES))]
    lines.add(b"next\n" * 50)
    assert lines.take(1.0) == [f"… {50 - LINES_PER_SECOND} lines left out", *["next"] * LINES_PER_SECOND]


def test_of_very_many_lines_in_one_piece_the_first_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def look(line: bytes) -> str:
        looked.append(line)
        return displayed_line(line)

    monkeypatch.setattr(task_output, "displayed_line", look)
    lines = OutputLines()
    lines.add(b"begun, ")
    lines.add(b"line\n\n" * 10_000 + b"last\n")
    assert lines.take(0.0) == [f"… {10_001 - BURST_LINES:,} lines left out", *["line"] * (BURST_LINES - 1), "last"]
    assert len(looked) < 2_000


def test_what_is_not_to_be_had_is_said() -> None:
    lines = OutputLines()
    lines.add(b"half a li")
    lines.add(b"a whole line\n", missed=4096)
    assert lines.take(0.0) == ["… 4 KiB left out", "a whole line"]


def test_a_progress_bar_is_told_now_and_then_and_at_its_end() -> None:
    lines, told = OutputLines(), []
    for second in range(100):
        lines.add(b"\r%3d%%" % second)
        told += lines.take(float(second))
    lines.add(b"\r100%\n")
    told += lines.take(100.0)
    assert told[-1] == "100%"
    assert len(told) == 2 + int(99 // BAR_SECONDS)


def test_what_a_bar_showed_at_last_is_not_told_twice() -> None:
    lines = OutputLines()
    lines.add(b"\r100%\r")
    assert lines.take(0.0) == ["100%"]
    assert lines.pending == 0
    lines.add(b"\r101%\r")
    assert lines.take(1.0) == []
    assert lines.pending == 12
    lines.add(b"100%\nafter\n")
    assert lines.take(100.0) == ["after"]


def test_who_prints_for_days_is_told_less_and_less() -> None:
    lines, count, last = OutputLines(), 0, []
    for minute in range(3 * MAX_LINES):
        lines.add(b"line\n" * 3)
        if taken := lines.take(60.0 * minute):
            count, last = count + len(taken), taken
        if lines.is_full:
            break
    assert lines.is_full
    assert MAX_LINES <= count <= 2 * MAX_LINES + 10
    assert "is not shown here" in last[-1]
    assert minute > MAX_LINES - MANY  # one a minute
    lines.add(b"more\n")
    assert lines.take(1e9) == []


def test_the_rest_of_a_line_is_pending() -> None:
    lines = OutputLines()
    lines.add(b"whole\nhalf")
    lines.take(0.0)
    assert lines.pending == 4
    lines.add(b" and half")
    assert lines.pending == 13
    lines.add(b"\n")
    assert lines.pending == 0

"""Secrets in pieces of a log: wherever it is cut, what is shown is what would be shown of it whole."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.text import (
    for_terminal,
    length_before_cut_secret,
    masked_bytes,
    masked_in_place,
    one_line,
    printable,
    without_orders,
)

SECRETS = st.lists(st.text("ab\n", min_size=5, max_size=12), max_size=3)
LOGS = st.lists(st.text("ab\n ", max_size=20), max_size=8)


@given(secrets=SECRETS, printed=LOGS)
def test_a_log_in_pieces_is_masked_as_the_whole_of_it(secrets: list[str], printed: list[str]) -> None:
    shown, rest = b"", b""
    for each in printed:
        rest += each.encode()
        length = length_before_cut_secret(rest, secrets)
        shown, rest = shown + masked_bytes(rest[:length], secrets), rest[length:]
    for secret in secrets:
        assert secret.encode() not in shown.replace(b"***", b"*")
    if len(secrets) == 1 and "\n" not in secrets[0]:
        assert shown + masked_bytes(rest, secrets) == masked_bytes("".join(printed).encode(), secrets)


def test_only_the_beginning_of_a_secret_waits() -> None:
    assert length_before_cut_secret(b"all is well", ["secret"]) == 11
    assert length_before_cut_secret(b"it is sec", ["secret"]) == 6
    assert length_before_cut_secret(b"it is secret", ["secret"]) == 12
    assert length_before_cut_secret(b"abXYZab", ["abXYZab"]) == 0  # its end may be the beginning of another one
    assert length_before_cut_secret(b"short abc", ["abcd"]) == 9


def test_a_log_that_is_masked_in_place_has_all_else_where_it_was() -> None:
    printed = b"a key: open-sesame\nBEGIN\nlines\n"
    assert masked_in_place(printed, ["open-sesame", "BEGIN\nlines"]) == b"a key: ***********\n*****\n*****\n"


def test_what_a_terminal_would_obey_is_no_text() -> None:
    said = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\u202eno\u2066w\u200b\ufeff\tthen\nnext\x9b2J\x00\x1b"
    assert without_orders(said) == "rednow\tthen\nnext\x9b2J\x00\x1b"
    assert printable(said) == "rednow\tthen\nnext2J"
    assert one_line(said) == "rednow then next2J"
    assert for_terminal(said.encode() + b"\r10%\xff") == "\x1b[31mred\x1b[0mnow\tthen\nnext2J\r10%\ufffd".encode()


@given(st.text(st.sampled_from("\x1b[]0;:m\x07\\\r\n\ta ?/@")))
def test_of_orders_nothing_is_left_but_colours(text: str) -> None:
    """Nor is one made of what stood around another."""
    assert "\x1b" not in printable(text)
    assert "\x1b" not in re.sub("\x1b\\[[0-9;:]*m", "", for_terminal(text.encode()).decode())


def test_orders_without_an_end_end_with_the_line() -> None:
    assert printable("a\x1b]0;title\nb\x1b]0;\x1b[1mc") == "a\nbc"

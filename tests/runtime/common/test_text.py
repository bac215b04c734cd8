"""Secrets in pieces of a log: wherever it is cut, what is shown is what would be shown of it whole."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common.text import (
    end_of_log,
    for_terminal,
    length_before_cut_secret,
    masked,
    masked_bytes,
    masked_in_place,
    one_line,
    printable,
    without_control_sequences,
    without_cut_secret,
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


@pytest.mark.parametrize(
    "secret", ["pass word/+ä&\"'", "-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n", "s3cret" * 20]
)
def test_a_secret_is_masked_as_it_travels(secret: str) -> None:
    data = secret.encode()
    printed = [
        f"url https://me:{quote(secret, safe='')}@host/?key={quote_plus(secret)}",
        f"json {json.dumps({'key': secret})} repr {secret!r} {[secret]}",
        f"Authorization: Basic {base64.b64encode(b'user:' + data).decode()}",
        *(f"base64 {base64.b64encode(bytes(n) + data + b'x').decode()}" for n in range(5)),
        f"base64url {base64.urlsafe_b64encode(data).decode()}",
        f"openssl\n{base64.encodebytes(data).decode()}",
        *(f"line {line}" for line in secret.splitlines()),
    ]
    for text in printed:
        for shown in (
            masked(text, [secret]),
            masked_bytes(text.encode(), [secret]).decode(),
            masked_in_place(text.encode(), [secret]).decode(),
        ):
            assert "*" in shown
            left = shown.partition(" ")[2]
            for size in range(len(secret) - 6):
                assert secret[size : size + 6] not in left.replace("https", "")
            decoded = b"".join(_decoded(left))
            assert not any(data[at : at + 4] in decoded for at in range(len(data) - 4))


def _decoded(text: str) -> Iterator[bytes]:
    """What is left of base64, in whichever place it begins."""
    for piece in re.findall(r"[A-Za-z0-9+/_-]{4,}", text):
        for start in range(4):
            inner = piece[start:].replace("-", "+").replace("_", "/")
            yield base64.b64decode(inner[: len(inner) // 4 * 4])


def test_what_is_short_is_no_secret_that_could_be_told_from_other_text() -> None:
    assert masked("a b abcd ab", ["a", "abcd"]) == "a b abcd ab"
    assert masked("YWJjZA==", ["abcd"]) == "YWJjZA=="
    assert masked("one\nlong line", ["one\nlong line"]) == "***"
    assert masked("one\nx\nlong line", ["one\nlong line"]) == "one\nx\n***"


@given(secret=st.text("abcdef", min_size=6, max_size=12), before=st.integers(0, 30), size=st.integers(1, 60))
def test_where_a_log_is_cut_no_half_of_a_secret_is_left(secret: str, before: int, size: int) -> None:
    whole = (b"-" * before + secret.encode()) * 3
    for piece in (whole[-size:], whole[:size]):
        shown = masked_in_place(without_cut_secret(piece, [secret]), [secret])
        assert len(shown) == len(piece)
        halves = {secret[at : at + 5].encode() for at in range(len(secret) - 4)}
        assert not any(half in shown for half in halves), (piece, shown)
        assert all(one == other or one == ord("*") for one, other in zip(shown, piece, strict=True))


def test_what_a_terminal_would_obey_is_no_text() -> None:
    said = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\u202eno\u2066w\u200b\ufeff\tthen\nnext\x9b2J\x00\x1b"
    assert without_control_sequences(said) == "rednow\tthen\nnext\x9b2J\x00\x1b"
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


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 100))
def test_the_end_of_a_log_begins_with_a_line(lengths: list[int], limit: int) -> None:
    lines = b"".join(b"x" * length + b"\n" for length in lengths)
    end = end_of_log(lines, limit)
    assert len(end) <= limit
    assert lines.endswith(end)
    assert end == lines or lines[: len(lines) - len(end)].endswith(b"\n") or len(end) == limit
    assert len(end) >= min(len(lines), limit // 2)


def test_of_a_very_long_line_the_end_is_kept() -> None:
    assert end_of_log(b"x" * 1000, 100) == b"x" * 100

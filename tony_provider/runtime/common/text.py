"""The forms in which the value of a secret may stand in what a program prints: as it is, and as it travels."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus


def secret_encodings(secret: str) -> set[str]:
    """The value itself, its single lines, and the value as URLs, JSON, Python's ``repr`` and base64 have it.

    Of base64 that is what the value alone determines, whatever is encoded before and after it, as in ``user:password``:
    at most three characters beside it hold some bits of the value, too.
    """
    data = secret.encode("utf-8", "surrogateescape")
    return {
        secret,
        secret.strip(),
        *(line.strip() for line in secret.splitlines()),
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        *_base64_forms(data),
    }


def _base64_forms(data: bytes) -> Iterator[str]:
    """Each byte is in one of three places of four characters; those that hold bits of others are left out."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        code = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        inner = code[mixed:-1] if (before + len(data)) % 3 else code[mixed:]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from base64.encodebytes(data).decode().split()  # in lines of 76 characters, as base64 and openssl write it


MASK = "***"
SHORTEST_SECRET = 5  # characters; as in Airflow's [logging] min_length_masked_secret
_IN_A_LINE = re.compile(rb"[^\n]")

# What a terminal obeys. An order without an end lasts up to the next one, or the line's end: all is looked at once.
_ORDER = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
# What nothing shows, or what turns the direction of the text around it.
_UNSEEN = r"[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"  # but ends of lines, and tabs
_ORDERS = re.compile(f"{_ORDER}|{_UNSEEN}")
_ALL_ORDERS = re.compile(f"{_ORDER}|{_UNSEEN}|{_CONTROLS}")
_TERMINAL = re.compile(rf"(\x1b\[[0-9;:]*m|\r)|{_ALL_ORDERS.pattern}")  # colours, and progress bars

LONGEST_LINE = 64 << 10  # bytes of a log that may come without an end of line before they are cut


def first_line(text: str) -> str:
    """The text up to its first line's end."""
    return text.partition("\n")[0]


def is_writable(text: str) -> bool:
    """Whether UTF-8 can write a text.

    JSON may hold half of a surrogate pair, and Python's names of files do for bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replaced(text: str) -> str:
    """The text with a question mark for each character that UTF-8 cannot write."""
    return text.encode("utf-8", "replace").decode()


def without_control_sequences(text: str) -> str:
    """The text without orders to terminals, such as colours, and without characters that nothing shows.

    Single control characters stay.
    """
    return _ORDERS.sub("", text)


def printable(text: str) -> str:
    """The text without all that a terminal obeys, or does not show; ends of lines and tabs stay."""
    return _ALL_ORDERS.sub("", replaced(text))


def one_line(text: str) -> str:
    """The text as ``printable``, in one line."""
    return printable(text.replace("\n", " ").replace("\t", " "))


def for_terminal(data: bytes) -> bytes:
    """What a program has printed as ``printable``, but with its colours, and with lines that it draws again."""
    return _TERMINAL.sub(lambda found: found[1] or "", data.decode("utf-8", "replace")).encode()


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the values of secrets, but for those so short that any text may hold them.

    Nor with single lines of those that have several, nor with what ``secret_forms`` makes of them.
    """
    for value in _masked_texts(secrets):
        text = text.replace(value, MASK)
    return text


def masked_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """A piece of a log without the values of secrets, as ``masked``; nor single lines of those that have several."""
    for value in _masked_values(secrets):
        data = data.replace(value, MASK.encode())
    return data


def masked_in_place(data: bytes, secrets: Iterable[str]) -> bytes:
    """A log without the values of secrets, as ``masked_bytes``, in which everything else stays where it was."""
    for value in _masked_values(secrets):
        data = data.replace(value, _stars(value))
    return data


def without_cut_secret(data: bytes, secrets: Iterable[str]) -> bytes:
    """A piece of a log that was cut anywhere, in which everything stays where it was, but for a secret's cut halves.

    That is the end of a value at its beginning, and the beginning of one at its end, where they are long enough.
    """
    start, end = 0, len(data)
    for value in _masked_values(secrets):
        # The end of a value at the beginning, read backwards, is the beginning of one at the end.
        start = max(start, _begun(data[: len(value)][::-1], value[::-1], SHORTEST_SECRET))
        end = min(end, len(data) - _begun(data, value, SHORTEST_SECRET))
    start, end = min(start, len(data)), max(end, start)
    return _stars(data[:start]) + data[start:end] + _stars(data[end:])


def length_before_cut_secret(data: bytes, secrets: Iterable[str]) -> int:
    """How many bytes of a piece of a log can be masked by themselves, whatever is printed after the piece.

    All of them, unless it ends with the beginning of a secret's value.
    """
    values = _masked_values(secrets)
    end = len(data)
    for value in values:
        end = min(end, len(data) - _begun(data, value, 1))
    # Nor may that be within another value, which would then be cut itself.
    while around := [
        at for value in values if (at := data.find(value, max(0, end - len(value) + 1), end + len(value) - 1)) >= 0
    ]:
        end = min(around)
    return end


def _begun(data: bytes, value: bytes, least: int) -> int:
    """How many bytes of the value, ``least`` or more and not all of them, the data end with."""
    at = max(0, len(data) - len(value) + 1) - 1
    while (at := data.find(value[:least], at + 1)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
    return 0


def _masked_values(secrets: Iterable[str]) -> list[bytes]:
    return [each.encode("utf-8", "surrogateescape") for each in _masked_texts(secrets)]


def _masked_texts(secrets: Iterable[str]) -> list[str]:
    """The longest first: one may be a part of another."""
    found = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in secret_encodings(secret)}
    return sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=lambda each: (-len(each), each))


def _stars(data: bytes) -> bytes:
    return _IN_A_LINE.sub(b"*", data)


def end_of_log(data: bytes, limit: int) -> bytes:
    """The last bytes of a log, at most ``limit``, from the start of a line; a very long line is cut."""
    cut = len(data) - limit
    if cut <= 0:
        return data
    return data[data.find(b"\n", cut - 1, cut + min(LONGEST_LINE, limit // 2)) + 1 or cut :]

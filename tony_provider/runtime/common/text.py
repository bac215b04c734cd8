"""Make text safe to print: drop control sequences, mask secrets and their encodings, cut logs at a line's start."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus


def secret_encodings(secret: str) -> set[str]:
    """Return a secret's value, its single lines, and its encodings: URL-quoted, JSON, Python's ``repr`` and base64.

    A base64 form has only the characters that depend on the value alone, so that the form also matches in the encoding
    of a longer text, such as ``user:password``. Up to three characters next to the match also hold bits of the value,
    and stay unmasked.
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
    """Encode at each of the three offsets of base64, and leave out characters that also hold bits of other bytes."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        code = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        inner = code[mixed:-1] if (before + len(data)) % 3 else code[mixed:]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from base64.encodebytes(data).decode().split()  # in lines of 76 characters, as base64 and openssl write them


MASK = "***"  # in place of a secret value, as Airflow writes it
_SECRET_NAME = re.compile(
    r"(?:^|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))"  # the beginning of a word, also in hubToken
    r"(?i:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|(?:api|access|private|secret)[_.-]?key)$"
)
SHORTEST_SECRET = 5  # characters; as in Airflow's [logging] min_length_masked_secret
_IN_A_LINE = re.compile(rb"[^\n]")

# Control sequences of terminals. An unterminated sequence ends at the next sequence or at the end of its line, so that
# the pattern does not remove the rest of the text.
_ORDER = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
# Invisible characters, and characters that change the direction of the text around them.
_UNSEEN = r"[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"  # except line ends and tabs
_ORDERS = re.compile(f"{_ORDER}|{_UNSEEN}")
_ALL_ORDERS = re.compile(f"{_ORDER}|{_UNSEEN}|{_CONTROLS}")
_TERMINAL = re.compile(rf"(\x1b\[[0-9;:]*m|\r)|{_ALL_ORDERS.pattern}")  # colours and progress bars are kept

LONGEST_LINE = 64 << 10  # bytes; a longer line of a log is cut


def first_line(text: str) -> str:
    """Return the text up to the end of its first line."""
    return text.partition("\n")[0]


def is_writable(text: str) -> bool:
    """Return whether UTF-8 can encode a text.

    JSON may hold half of a surrogate pair, and Python's file names hold such halves in place of undecodable bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replaced(text: str) -> str:
    """Return the text with a question mark in place of each character that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def without_control_sequences(text: str) -> str:
    """Return the text without terminal control sequences, such as colours, and without invisible characters.

    Single control characters stay.
    """
    return _ORDERS.sub("", text)


def printable(text: str) -> str:
    """Remove control sequences, control characters and invisible characters from a text. Line ends and tabs stay."""
    return _ALL_ORDERS.sub("", replaced(text))


def one_line(text: str) -> str:
    """Return the text as ``printable`` does, in one line."""
    return printable(text.replace("\n", " ").replace("\t", " "))


def for_terminal(data: bytes) -> bytes:
    """Return program output as ``printable`` does, but keep colours and carriage returns of progress bars."""
    return _TERMINAL.sub(lambda found: found[1] or "", data.decode("utf-8", "replace")).encode()


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret's value masked, except values so short that any text may hold them.

    Also masks the single lines of multi-line values, and the encodings that ``secret_encodings`` returns.
    """
    for value in _masked_texts(secrets):
        text = text.replace(value, MASK)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether the last word of a parameter's name says that the value is a secret, as in ``hub.api_key``."""
    return _SECRET_NAME.search(name) is not None


def masked_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """Mask the values of secrets in a piece of a log, as ``masked`` does in a text."""
    for value in _masked_values(secrets):
        data = data.replace(value, MASK.encode())
    return data


def masked_in_place(data: bytes, secrets: Iterable[str]) -> bytes:
    """Mask the values of secrets in a log like ``masked_bytes``, but keep the length, so that no text moves."""
    for value in _masked_values(secrets):
        data = data.replace(value, _stars(value))
    return data


def without_cut_secret(data: bytes, secrets: Iterable[str]) -> bytes:
    """Mask the part of a secret that a cut left at either end of a piece of a log. Keep the position of all text.

    A part has at least SHORTEST_SECRET bytes: the end of a value at the piece's start, or the start of a value at its
    end.
    """
    start, end = 0, len(data)
    for value in _masked_values(secrets):
        # For the end of a value at the beginning of the data, reverse both and search at the end.
        start = max(start, _begun(data[: len(value)][::-1], value[::-1], SHORTEST_SECRET))
        end = min(end, len(data) - _begun(data, value, SHORTEST_SECRET))
    start, end = min(start, len(data)), max(end, start)
    return _stars(data[:start]) + data[start:end] + _stars(data[end:])


def length_before_cut_secret(data: bytes, secrets: Iterable[str]) -> int:
    """Return how many bytes of a piece of a log can be masked without knowing what follows the piece.

    Returns the whole length, unless the piece ends with the beginning of a secret's value.
    """
    values = _masked_values(secrets)
    end = len(data)
    for value in values:
        end = min(end, len(data) - _begun(data, value, 1))
    # The end must not be within another value either, because that value would be cut.
    while around := [
        at for value in values if (at := data.find(value, max(0, end - len(value) + 1), end + len(value) - 1)) >= 0
    ]:
        end = min(around)
    return end


def _begun(data: bytes, value: bytes, least: int) -> int:
    """Return how many bytes at the end of ``data`` begin ``value``: at least ``least``, not all of it, or else 0."""
    at = max(0, len(data) - len(value) + 1) - 1
    while (at := data.find(value[:least], at + 1)) >= 0:
        if value.startswith(data[at:]):
            return len(data) - at
    return 0


def _masked_values(secrets: Iterable[str]) -> list[bytes]:
    return [each.encode("utf-8", "surrogateescape") for each in _masked_texts(secrets)]


def _masked_texts(secrets: Iterable[str]) -> list[str]:
    """Return the texts to mask, the longest first because one may be a part of another."""
    found = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in secret_encodings(secret)}
    return sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=lambda each: (-len(each), each))


def _stars(data: bytes) -> bytes:
    return _IN_A_LINE.sub(b"*", data)


def end_of_log(data: bytes, limit: int) -> bytes:
    """Return the last bytes of a log, at most ``limit``, from the start of a line; a very long line is cut."""
    cut = len(data) - limit
    if cut <= 0:
        return data
    return data[data.find(b"\n", cut - 1, cut + min(LONGEST_LINE, limit // 2)) + 1 or cut :]

"""JSON that others have written, read within bounds: what is beyond them is refused before it takes memory or time.

Beside what ``json`` refuses, these are: more values than wanted, deep nesting, numbers that are no finite ones or have
thousands of digits, a key that comes twice, and text that UTF-8 cannot write. A value takes up to some 250 bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from tony_provider.runtime.text import printable

MOST_VALUES = 1_000_000  # an application master's status of ten thousand tasks has some 500,000
DEEPEST = 50  # levels; nothing of ours has ten
RETURNED_DEEPEST = 200  # of what a program returns
_MOST_DIGITS = 4000  # of a number; Python's own limit, where it has one, is 4300
_LONGEST_SHOWN = 40  # characters of what is wrong
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ForeignJsonError(ValueError):
    """Bytes are no JSON, or more than is read of somebody else's; the message says what is wrong with them."""


def read_json(
    data: bytes,
    *,
    most_values: int = MOST_VALUES,
    deepest: int = DEEPEST,
    surrogates: bool = False,
    constants: bool = False,
) -> Any:
    """What JSON in UTF-8 says. Its length in bytes is the caller's to bound. Raises ForeignJsonError.

    ``constants``: NaN and infinities may stand there, as Python writes them. ``surrogates``: text may hold halves of
    surrogate pairs, as Python has bytes that are no text.
    """
    # Before anything is made of it; what texts hold is counted, too.
    opened = data.count(b"[") + data.count(b"{")
    if (values := data.count(b",") + opened) > most_values:
        raise ForeignJsonError(f"it has up to {values} values; more than {most_values} are not read")
    try:
        plain = _DECODERS[constants].decode(data.decode("utf-8"))
    except ForeignJsonError:
        raise
    except RecursionError as error:
        raise ForeignJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise ForeignJsonError(str(error)) from error
    if opened > deepest and is_nested_deeper(plain, deepest):
        raise ForeignJsonError(f"it is nested too deeply: more than {deepest} levels are not read")
    if not surrogates and _SURROGATE.search(data):
        try:
            json.dumps(plain, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ForeignJsonError("it holds text that UTF-8 cannot write: half of a surrogate pair") from error
    return plain


def is_nested_deeper(plain: Any, levels: int) -> bool:
    """Whether what ``json.loads`` gives has more levels than that. It reads more of them than others can work with."""
    if isinstance(plain, dict):
        inner: Iterable[Any] = plain.values()
    elif isinstance(plain, list):
        inner = plain
    else:
        return False
    return levels == 0 or any(is_nested_deeper(each, levels - 1) for each in inner if isinstance(each, (dict, list)))


def made_printable(plain: Any) -> Any:
    """What ``read_json`` gives, with all text as ``text.printable`` has it: for people's eyes, logs and terminals."""
    if isinstance(plain, str):
        return plain if plain.isprintable() else printable(plain)
    if isinstance(plain, list):
        return [made_printable(each) for each in plain]
    if isinstance(plain, dict):
        return {made_printable(key): made_printable(value) for key, value in plain.items()}
    return plain


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ForeignJsonError(f"the key {_shown(twice)} comes twice")
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ForeignJsonError(f"a number has {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text) if len(text) <= _MOST_DIGITS else math.inf
    if math.isinf(number):
        raise ForeignJsonError(f"the number {_shown(text)} is too large, or too long")
    return number


def _no_constant(constant: str) -> float:
    raise ForeignJsonError(f"{constant} is not JSON")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


def _decoder(*, constants: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=float if constants else _no_constant,
    )


# To make one takes as long as reading a short line.
_DECODERS = {constants: _decoder(constants=constants) for constants in (False, True)}

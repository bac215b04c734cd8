"""How many bytes are read at most of what somebody else has written: the one table of these bounds.

A job writes in its directory what it likes, and a file there may be anything by the time it is read. Each bound is
several times what ours come to. What JSON takes beside its bytes is bounded by ``foreign_json``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from tony_provider.runtime.common.text import printable

STATUS_LIMIT = 32 << 20  # status.json, result.json: of ten thousand tasks less than ten MiB
APPLICATION_LIMIT = 16 << 20  # the description of an application, its job specification included
RECORD_LIMIT = 1 << 20  # a small one: who owns a chain, that a result was delivered, a model's version
PREVIOUS_RUNS_LIMIT = 16 << 20  # what ten applications of a task of a DAG have used
RETURN_VALUE_LIMIT = 16 << 20  # return_value.json: up to 1 MiB as the program wrote it, and longer in our words
MANIFEST_LIMIT = 64 << 20  # of a committed checkpoint, of some hundred thousand files
COMMITS_LIMIT = 16 << 20  # one file of a shard log; full with 256 KiB
EVENT_SEGMENT_LIMIT = 16 << 20  # one segment of the event log, compressed; all of them are half a MiB
FETCHED_PART_LIMIT = 64 << 20  # a task's part of an input, of some hundred thousand files
MASTER_ANSWER_LIMIT = 32 << 20  # of an application master, over the proxy
YARN_ANSWER_LIMIT = 256 << 20  # of a ResourceManager: a listing of a hundred thousand applications
NODE_ANSWER_LIMIT = 16 << 20  # of a NodeManager: its configuration, some 200 KiB, or the end of a container's log
ADDRESSES_LIMIT = 16 << 20  # of all tasks, unpacked: some 60 bytes each

MOST_VALUES = 1_000_000  # an application master's status of ten thousand tasks has some 500,000
DEEPEST = 50  # levels; nothing of ours has ten
RETURNED_DEEPEST = 200  # of what a program returns
_MOST_DIGITS = 4000  # of a number; Python's own limit, where it has one, is 4300
_LONGEST_SHOWN = 40  # characters of what is wrong
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BoundedJsonError(ValueError):
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
        raise BoundedJsonError(f"it has up to {values} values; more than {most_values} are not read")
    try:
        plain = _DECODERS[constants].decode(data.decode("utf-8"))
    except BoundedJsonError:
        raise
    except RecursionError as error:
        raise BoundedJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise BoundedJsonError(str(error)) from error
    if opened > deepest and is_nested_deeper(plain, deepest):
        raise BoundedJsonError(f"it is nested too deeply: more than {deepest} levels are not read")
    if not surrogates and _SURROGATE.search(data):
        try:
            json.dumps(plain, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BoundedJsonError("it holds text that UTF-8 cannot write: half of a surrogate pair") from error
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


def printable_json(plain: Any) -> Any:
    """What ``read_json`` gives, with all text as ``text.printable`` has it: for people's eyes, logs and terminals."""
    if isinstance(plain, str):
        return plain if plain.isprintable() else printable(plain)
    if isinstance(plain, list):
        return [printable_json(each) for each in plain]
    if isinstance(plain, dict):
        return {printable_json(key): printable_json(value) for key, value in plain.items()}
    return plain


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BoundedJsonError(f"the key {_shown(twice)} comes twice")
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise BoundedJsonError(f"a number has {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text) if len(text) <= _MOST_DIGITS else math.inf
    if math.isinf(number):
        raise BoundedJsonError(f"the number {_shown(text)} is too large, or too long")
    return number


def _no_constant(constant: str) -> float:
    raise BoundedJsonError(f"{constant} is not JSON")


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

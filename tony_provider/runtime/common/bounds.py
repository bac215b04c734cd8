"""Size limits for files and answers that other parties write, and a JSON reader that enforces limits.

The programs of a job can write to the job's directory, so they may have replaced any file there. Each limit is several
times the size that the runtime itself writes. ``read_json`` also limits the number of values, the nesting and the
digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from tony_provider.runtime.common.text import printable

STATUS_LIMIT = 32 << 20  # status.json, result.json; ten thousand tasks need less than 10 MiB
APPLICATION_LIMIT = 16 << 20  # description of an application, with its job specification
RECORD_LIMIT = 1 << 20  # small records, such as a chain's owner, a result's delivery or a model's version
PREVIOUS_RUNS_LIMIT = 16 << 20  # resource use of ten earlier applications of an Airflow task
RETURN_VALUE_LIMIT = 16 << 20  # return_value.json; a program writes up to 1 MiB, and rewriting may enlarge it
MANIFEST_LIMIT = 64 << 20  # manifest of a committed checkpoint with some hundred thousand files
COMMITS_LIMIT = 16 << 20  # one file of a shard log; at 256 KiB, the runtime begins a new file
EVENT_SEGMENT_LIMIT = 16 << 20  # one compressed segment of the event log; all segments together have 0.5 MiB
MASTER_ANSWER_LIMIT = 32 << 20  # answer of an application master through YARN's proxy
YARN_ANSWER_LIMIT = 256 << 20  # answer of a ResourceManager: a listing of a hundred thousand applications
NODE_ANSWER_LIMIT = 16 << 20  # answer of a NodeManager: its configuration (200 KiB), or the end of a container's log
ADDRESSES_LIMIT = 16 << 20  # addresses of all tasks, unpacked: some 60 bytes each

MOST_VALUES = 1_000_000  # the status of a job with ten thousand tasks has some 500,000 values
DEEPEST = 50  # levels; the runtime's JSON has fewer than ten
RETURNED_DEEPEST = 200  # levels of a program's return value
_MOST_DIGITS = 4000  # digits of one number; some versions of Python reject more than 4300
_LONGEST_SHOWN = 40  # characters of an invalid value that a message shows
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BoundedJsonError(ValueError):
    """Error for bytes that are not JSON or that exceed a limit of the reader; the message names the problem."""


def read_json(
    data: bytes,
    *,
    deepest: int = DEEPEST,
    surrogates: bool = False,
    constants: bool = False,
) -> Any:
    """Parse JSON in UTF-8. The caller limits the number of bytes. Raises BoundedJsonError.

    ``constants``: accept NaN and infinities, as Python writes them. ``surrogates``: accept text with halves of
    surrogate pairs, which Python uses for undecodable bytes.
    """
    # Counted before parsing, so brackets and commas within texts count as well.
    opened = data.count(b"[") + data.count(b"{")
    if (values := data.count(b",") + opened) > MOST_VALUES:
        raise BoundedJsonError(f"it has up to {values} values, more than the limit of {MOST_VALUES}")
    try:
        plain = _DECODERS[constants].decode(data.decode("utf-8"))
    except BoundedJsonError:
        raise
    except RecursionError as error:
        raise BoundedJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise BoundedJsonError(str(error)) from error
    if opened > deepest and is_nested_deeper(plain, deepest):
        raise BoundedJsonError(f"it is nested too deeply: the limit is {deepest} levels")
    if not surrogates and _SURROGATE.search(data):
        try:
            json.dumps(plain, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BoundedJsonError("it contains text that UTF-8 cannot encode: half of a surrogate pair") from error
    return plain


def is_nested_deeper(plain: Any, levels: int) -> bool:
    """Return whether a result of ``json.loads`` has over ``levels`` levels, so that recursive code could fail."""
    if isinstance(plain, dict):
        inner: Iterable[Any] = plain.values()
    elif isinstance(plain, list):
        inner = plain
    else:
        return False
    return levels == 0 or any(is_nested_deeper(each, levels - 1) for each in inner if isinstance(each, (dict, list)))


def printable_json(plain: Any) -> Any:
    """Apply ``text.printable`` to each text in a result of ``read_json``, for logs and terminals."""
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
        raise BoundedJsonError(f"the key {_shown(twice)} occurs twice")
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


# Created once, because creating a decoder takes as long as reading a short line.
_DECODERS = {constants: _decoder(constants=constants) for constants in (False, True)}

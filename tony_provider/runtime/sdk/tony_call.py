"""Call the function of ``@task.tony`` in each task that runs it: ``python -m tony_call``.

In the working directory, FUNCTION_FILE contains the function, and ARGUMENTS_FILE contains the name and arguments of the
function. The return value of the chief, or of rank 0, is written to TONY_RESULT_FILE. Needs only Python 3.9.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

FUNCTION_MODULE = "tony_function"
FUNCTION_FILE = f"{FUNCTION_MODULE}.py"
ARGUMENTS_FILE = "tony_arguments.json"  # {"function": name, "args": […], "kwargs": {…}}
COMMAND = "exec python -m tony_call"
REFUSED = 79  # exit code for an invalid return value; a retry would fail in the same way
MAX_DEPTH = 100  # nested levels; all readers support this depth
MAX_RESULT = 1 << 20  # bytes, as in runtime/common/contract.py, which user processes cannot import


class NotJsonError(ValueError):
    """A value cannot be represented in JSON. The message names the place of the value."""


def plain(value: Any, place: str, depth: int = 0) -> Any:
    """Convert ``value`` to JSON types: sequences to lists, and single numbers of NumPy or similar libraries to numbers.

    Raises NotJsonError.
    """
    if depth > MAX_DEPTH:
        raise NotJsonError(f"{place.partition('[')[0]} is nested too deeply, {MAX_DEPTH} levels at most")
    if isinstance(value, str):
        _check_text(value, place)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise NotJsonError(f"{place} has the key {key!r}, of type {_name(key)}; keys in JSON are text")
            _check_text(key, f"a key of {place}")
        return {key: plain(below, f"{place}[{key!r}]", depth + 1) for key, below in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(below, f"{place}[{index}]", depth + 1) for index, below in enumerate(value)]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return plain(value.item(), place)
    raise NotJsonError(f"{place} is of type {_name(value)}, which JSON does not support")


def _check_text(text: str, place: str) -> None:
    """Reject lone surrogates, which UTF-8 cannot encode. For example, file names that are not UTF-8 contain them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotJsonError(f"{place} contains text that UTF-8 cannot encode: {text[:80]!r}") from error


def main() -> int:
    """Call the function and write the return value. Return the exit code."""
    call = json.loads(Path(ARGUMENTS_FILE).read_bytes())
    name = call["function"]
    try:
        function = getattr(importlib.import_module(FUNCTION_MODULE), name)
        returned = function(*call["args"], **call["kwargs"])
    except Exception as error:  # noqa: BLE001 - print it like Python, but without frames of this module
        shown = error.with_traceback(_of_function(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    if os.environ.get("TONY_RANK") != "0":
        return 0
    try:
        data = _dump(plain(returned, "returned"))
    except ValueError as error:  # also raised for a number with thousands of digits
        print(f"{name}() cannot return this: {error}", file=sys.stderr)  # noqa: T201 - the task's own log
        return REFUSED
    Path(os.environ["TONY_RESULT_FILE"]).write_bytes(data)
    return 0


def _dump(value: Any) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    if len(data) > MAX_RESULT:
        raise NotJsonError(
            f"as JSON it has {len(data)} bytes, and the limit is {MAX_RESULT}; write large data to TONY_MODEL_DIR"
        )
    return data


def _of_function(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Return the part of a traceback that begins in the function's file."""
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).name != FUNCTION_FILE:
        trace = trace.tb_next
    return trace


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


if __name__ == "__main__":
    sys.exit(main())

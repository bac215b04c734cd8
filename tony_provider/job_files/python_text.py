"""Values as a person writes them in Python, and ``ruff format`` leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tony_provider.job_files.fill import Literal

_WIDTH = 88  # what fits here fits wider limits as well; what is longer is one element a line, with a comma after each
_STEP = "    "
_CALL = "literal"  # airflow.sdk.literal


def literal(value: Any, indent: int = 0, before: int = 0, after: int = 1) -> str:
    """A value: plain ones, lists, mappings.

    ``indent``: levels of the line that it begins on; ``before`` and ``after``: characters that share that line.
    """
    flat = _flat(value)
    fits = len(_STEP) * indent + before + len(flat) + after <= _WIDTH and "\n" not in flat
    inner = _STEP * (indent + 1)
    if isinstance(value, Literal) and not fits and "\n" not in flat:
        return f"{_CALL}(\n{inner}{_string(value.text)}\n{_STEP * indent})"
    if fits or not isinstance(value, (Mapping, list)) or not value:
        return flat
    if isinstance(value, Mapping):
        lines = []
        for key, each in value.items():
            name = f"{_flat(str(key))}: "
            lines.append(f"{inner}{name}{literal(each, indent + 1, len(name))},")
        return "\n".join(["{", *lines, f"{_STEP * indent}}}"])
    lines = [f"{inner}{literal(each, indent + 1)}," for each in value]
    return "\n".join(["[", *lines, f"{_STEP * indent}]"])


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(str(key))}: {_flat(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if isinstance(value, Literal):
        return f"{_CALL}({_string(value.text)})"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    """In double quotes, unless that takes more escapes; several lines as they are, where nothing speaks against it."""
    if "\n" in text and _reads_as_it_is(text):
        return f'"""{text}"""'
    written = repr(text)
    if written.startswith("'") and (text.count('"') == 0 or text.count("'") > text.count('"')):
        inside = written[1:-1].replace("\\'", "'").replace('"', '\\"')
        return f'"{inside}"'
    return written


def _reads_as_it_is(text: str) -> bool:
    lines = text.split("\n")
    return (
        '"""' not in text
        and "\\" not in text
        and not text.endswith('"')
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )

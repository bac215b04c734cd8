"""Checks of single arguments, shared by operators and sensors.

Each parse of a DAG file imports this module, so it imports the modules for error messages on use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, cast

from tony_provider.exceptions import TonySpecError

DEFAULT_CONN_ID = "tony_default"
MOST_SHOWN = 8  # maximum number of tasks whose output one task's log shows

_TASK = re.compile(r"[^\s:]+:\d+")


def positive_seconds(name: str, value: timedelta | float) -> float:
    """Return the argument ``name`` as a positive number of seconds. Raises ValueError."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_positive(seconds):
        raise ValueError(f"{name} is {value!r}: a timedelta or a number of seconds, more than 0")
    return float(seconds)


def positive_number(name: str, value: float) -> float:
    """Return the argument ``name``, a positive number. Raises ValueError."""
    if not _is_positive(value):
        raise ValueError(f"{name} is {value!r}: a number, more than 0")
    return float(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def yes_or_no(name: str, value: bool) -> bool:
    """Return the argument ``name``, a bool. Raises ValueError also for text, because the text "no" would be true."""
    if value is not True and value is not False:
        raise ValueError(f"{name} is {value!r}: True or False")
    return value


def names(argument: str, value: Any) -> list[str]:
    """Return the argument as a list of texts. Raises ValueError, also for a single text instead of its letters."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) and each.strip() for each in value):
        raise ValueError(f"{argument} is {value!r}: a list of texts")
    return list(value)


def output_wanted(value: Any) -> Literal["leader", False] | list[str]:
    """Return the argument ``show_output`` after a check. Raises ValueError."""
    if value is False or value == "leader":
        return cast(Literal["leader", False], value)
    names = value if isinstance(value, (list, tuple)) else []
    if not names or not all(isinstance(name, str) and _TASK.fullmatch(name) for name in names):
        raise ValueError(f'show_output is {value!r}: "leader", a list of names of tasks such as ["worker:0"], or False')
    names = list(dict.fromkeys(names))
    if len(names) > MOST_SHOWN:
        raise ValueError(f"show_output names {len(names)} tasks: {MOST_SHOWN} at most")
    return names


def expect_keys(argument: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that a mapping has only ``known`` keys. Raises TonySpecError."""
    if unknown := sorted(set(given) - set(known)):
        from tony_provider.runtime.jobspec.problems import shown, suggestion

        hint = suggestion(unknown[0], list(known))
        raise TonySpecError(f"{argument}: {shown(unknown[0])} is not known{hint}; it may hold {', '.join(known)}")


def text_of(argument: str, given: Mapping[str, Any], key: str) -> str | None:
    """Return the text of a key, or None if it is empty or missing. Raises TonySpecError."""
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        from tony_provider.runtime.jobspec.problems import shown

        raise TonySpecError(f"{argument}.{key}: should be text, not {shown(value)}")
    return value or None


def empty_to_none(task: Any, names: Iterable[str]) -> None:
    """Set rendered arguments of ``task`` without a value to None.

    Jinja renders None as text, for example for a parameter that was left empty.
    """
    for name in names:
        value = getattr(task, name)
        if isinstance(value, str) and value.strip() in ("", "None"):
            setattr(task, name, None)

"""Problems of a specification, which one SpecError collects, and paths that name the wrong keys."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

NOT_GIVEN: Any = attrs.NOTHING
"""The value of a problem that is about a missing key."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,120}")

MOST_LISTED = 100  # problems in an error's message
_LONGEST = 1000  # characters of each problem in the message

# Names of keys in other systems, with spellings that are too different for difflib to match.
_OTHER_NAMES = {
    "cores": "vcores",
    "count": "instances",
    "cpu": "vcores",
    "cpus": "vcores",
    "num_instances": "instances",
    "replicas": "instances",
    "venv": "python_env",
}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxdict = _short.maxlist = 4
_short.maxlevel = 3


@attrs.frozen
class Problem:
    """Error in a specification."""

    path: str  # path of the key: tasks.worker.instances; empty for the job as a whole
    value: object  # value as rendered; NOT_GIVEN for a missing key
    message: str  # what is wrong, and which values are allowed

    def __str__(self) -> str:
        where = self.path or "(job)"
        return f"{where}: {self.message}" + ("" if self.value is NOT_GIVEN else f" (got {shown(self.value)})")


class SpecError(ValueError):
    """A specification cannot be run as written; ``problems`` holds all problems.

    The message lists the first problems, as ``first_problems`` returns them.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "one problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(
            "\n".join([f"the job specification has {count}:", *(f"  {each}" for each in first_problems(self.problems))])
        )

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # Airflow pickles exceptions between processes


def shown(value: object) -> str:
    """Return a value's ``repr``, cut to some 120 characters."""
    try:
        return _short.repr(value)
    except ValueError:  # Python refuses to convert integers of thousands of digits
        return f"a very large {type(value).__name__}"


def first_problems(problems: Sequence[object]) -> list[str]:
    """Format the first MOST_LISTED problems, each cut to 1,000 characters, and a line that counts further ones."""
    texts = [str(each) for each in problems[:MOST_LISTED]]
    found = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
    more = len(problems) - len(found)
    return [*found, f"and {more} more"] if more > 0 else found


def child(path: str, *keys: object) -> str:
    """Return ``path`` with these keys appended: ``tasks.worker``, ``env['A B']``."""
    for key in keys:
        if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
            path = f"{path}.{key}" if path else key
        else:
            path = f"{path}[{shown(key)}]"
    return path


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each leaf of nested mappings and lists."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, child(path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, item(path, index))
    else:
        yield path, value


def map_leaves(value: Any, function: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return a copy of nested mappings and lists in which ``function(path, leaf)`` replaces each leaf."""
    if isinstance(value, Mapping):
        return {key: map_leaves(each, function, child(path, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [map_leaves(each, function, item(path, index)) for index, each in enumerate(value)]
    return function(path, value)


def leaf_keys(plain: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each key whose value is no mapping, or an empty mapping. A list is one value."""
    for key, value in plain.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaf_keys(value, path)
        else:
            yield path, value


def flattened(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested mappings by their paths, such as ``tasks.worker.memory``.

    A list counts as one value, because its items cannot be matched between documents. An empty mapping is also one
    value.
    """
    return {".".join(path): each for path, each in leaf_keys(value)}


def item(path: str, index: int) -> str:
    """Return the path of a list element: ``files[0]``."""
    return f"{path}[{index}]"


def suggestion(name: str, allowed: list[str]) -> str:
    """Return the hint ``; did you mean x?`` if one of ``allowed`` is close, otherwise an empty string."""
    import difflib  # imported here because nodes load this module but never need difflib

    other = _OTHER_NAMES.get(name.lower())
    close = [other] if other in allowed else difflib.get_close_matches(name.lower(), allowed, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def must_be_among(name: str, allowed: list[str]) -> str:
    """Return ``suggestion``, or the hint ``; there are x, y`` if none is close."""
    return suggestion(name, allowed) or f"; there are {', '.join(allowed)}"

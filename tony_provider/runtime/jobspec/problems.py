"""What is wrong with a specification: one Problem per key, all of them in one SpecError."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from typing import Any

import attrs

NOT_GIVEN: Any = attrs.NOTHING
"""The value of a problem that is about a missing key."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,120}")

MOST_TOLD = 100  # problems of an error, in its message
_LONGEST = 1000  # characters of one of them there

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxdict = _short.maxlist = 4
_short.maxlevel = 3


@attrs.frozen
class Problem:
    """Something wrong with a specification."""

    path: str  # of the key: tasks.worker.instances; empty for the job as a whole
    value: object  # as rendered; NOT_GIVEN for a missing key
    message: str  # what is wrong and what is allowed

    def __str__(self) -> str:
        where = self.path or "(job)"
        return f"{where}: {self.message}" + ("" if self.value is NOT_GIVEN else f" (got {shown(self.value)})")


class SpecError(ValueError):
    """A specification that cannot be run as written; ``problems`` holds everything that is wrong with it.

    Its message tells the first of them, as ``told`` does.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "one problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(
            "\n".join([f"the job specification has {count}:", *(f"  {each}" for each in told(self.problems))])
        )

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # Airflow carries exceptions between processes


def shown(value: object) -> str:
    """A value as Python writes it, cut to some 120 characters, however large it is."""
    try:
        return _short.repr(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return f"a very large {type(value).__name__}"


def told(problems: Sequence[object]) -> list[str]:
    """Problems as a message has them: the first MOST_TOLD, each of 1,000 characters at most, and how many more."""
    texts = [str(each) for each in problems[:MOST_TOLD]]
    found = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
    more = len(problems) - len(found)
    return [*found, f"and {more} more"] if more > 0 else found


def child(path: str, key: object) -> str:
    """The path of a key below ``path``: ``tasks.worker``, ``env['A B']``."""
    if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{shown(key)}]"


def item(path: str, index: int) -> str:
    """The path of a list's element: ``files[0]``."""
    return f"{path}[{index}]"

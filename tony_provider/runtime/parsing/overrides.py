"""What ``overrides`` may touch: by default sizes, limits and names, and nothing by which a job becomes another one.

Whoever may only fill in a trigger form, or start a run with a conf, writes them where a DAG lets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import attrs

from tony_provider.runtime.spec.problems import MOST_TOLD, NOT_GIVEN, Problem, SpecError, child

# The only definition. A pattern allows a key with all that is below it; ``*`` stands for one name, or a part of it.
ALLOWED_BY_DEFAULT = (
    "name",
    "queue",
    "priority",
    "tasks.*.instances",
    "tasks.*.min_instances",
    "tasks.*.max_instances",
    "tasks.*.grow",
    "tasks.*.memory",
    "tasks.*.vcores",
    "tasks.*.gpus",
    "tasks.*.processes",
    "am.memory",
    "am.vcores",
    "am.attempts",
    "am.attempts_window",
    "tensorboard.memory",
    "tensorboard.vcores",
    "timeouts",
    "restart",
    "checkpoint.keep",
    "checkpoint.keep_every",
    "checkpoint.bandwidth",
    "checkpoint.max_size",
    "export",
    "logs.max_size",
)

EVERYTHING = ("*",)
MOST_KEYS = 10_000  # and elements of lists that overrides may have; YAML's aliases write billions in a few lines

_LONGEST_PATTERN = 300  # characters
_DEEPEST = 20  # names of a key in a message

_REFUSED = (
    "may not be overridden. It comes from `overrides`, as this run has filled them in; whoever writes the DAG may "
    'allow that, by allowed_overrides=["%s"] of the operator'
)


@attrs.frozen
class Patterns:
    """Keys of a job, such as ``tasks.*.env.LR``."""

    texts: Sequence[str]

    def allow(self, path: tuple[str, ...]) -> bool:
        return any(_covers(text.split("."), path) for text in self.texts)


def _covers(pattern: Sequence[str], path: Sequence[str]) -> bool:
    return len(pattern) <= len(path) and all(map(fnmatchcase, path, pattern))


def check_overrides(overrides: Mapping[str, Any], job: Mapping[str, Any], allowed: Sequence[str] = ()) -> None:
    """Check what is laid over a job, which is given as it is below them, against what they may touch.

    ``allowed``: patterns beside those of ALLOWED_BY_DEFAULT, by whoever writes the DAG. Raises SpecError with every
    key that is not allowed.
    """
    try:
        too_many = any(islice(_members(overrides), MOST_KEYS, None))
        given = [] if too_many else list(leaves(overrides))
    except RecursionError as error:
        raise SpecError([Problem("overrides", NOT_GIVEN, "nested too deeply")]) from error
    if too_many:
        raise SpecError([Problem("overrides", NOT_GIVEN, f"more than {MOST_KEYS} keys and elements of lists")])
    patterns = Patterns([*ALLOWED_BY_DEFAULT, *allowed])
    touched = {_touched(path, job): value for path, value in given}
    refused = [(path, value) for path, value in touched.items() if not patterns.allow(path)]
    # Made of these alone: each names all the keys above it, which may be long.
    some = refused if len(refused) <= MOST_TOLD else refused[: MOST_TOLD - 1]
    problems = [Problem(dotted(path), value, _REFUSED % _pattern(path)) for path, value in some]
    if more := len(refused) - len(some):
        problems.append(Problem("overrides", NOT_GIVEN, f"{more} more of its keys may not"))
    if problems:
        raise SpecError(problems)


def _pattern(path: Sequence[str]) -> str:
    text = ".".join(path) if sum(map(len, path)) < _LONGEST_PATTERN else ""
    return text or dotted(path[:3])


def _members(plain: object) -> Iterator[bool]:
    """True for each key and each element of a list, at any depth."""
    inner = plain.values() if isinstance(plain, Mapping) else plain if isinstance(plain, (list, tuple)) else ()
    for each in inner:
        yield True
        yield from _members(each)


def _touched(path: tuple[str, ...], job: Mapping[str, Any]) -> tuple[str, ...]:
    """The key that is set or deleted. A task type that the job has not is one as a whole.

    Sizes alone make no task type, but where the program is the same for all (``@task.tony``) they would.
    """
    tasks = job.get("tasks")
    known = {str(name) for name in tasks} if isinstance(tasks, Mapping) else set()
    return path[:2] if path[0] == "tasks" and len(path) > 1 and path[1] not in known else path


def leaves(plain: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The keys whose values are no mappings, or empty ones; lists are values."""
    for key, value in plain.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def dotted(path: Sequence[str]) -> str:
    """As messages name a key: ``tasks.worker.memory``; of one that no job has so deep, the beginning."""
    text = ""
    for name in path[:_DEEPEST]:
        text = child(text, name)
    return text if len(path) <= _DEEPEST else f"{text}…"

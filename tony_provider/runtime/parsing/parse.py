"""Load a job from YAML, JSON or mappings, merge its layers, check its overrides, and parse it.

YAML is read by a safe loader without YAML 1.1's implicit types. A plain scalar is the text as written, except that
``null``, ``~`` and an empty scalar are null. So ``on``, ``010``, ``1:30`` and ``1.10`` stay unchanged, which matters
most in environment variables. Numbers and truth values are parsed where the model expects them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Optional, Union

import attrs
import yaml

from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.jobspec.container_content import with_tensorboard_task, without_tensorboard_task
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import (
    MOST_LISTED,
    NOT_GIVEN,
    Problem,
    SpecError,
    child,
    item,
    leaf_keys,
)
from tony_provider.runtime.parsing.reader import Reader
from tony_provider.runtime.parsing.validation import validate

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp", "value")}
_MOST_MERGED = 100_000
_DEEPEST_FLOW = 100  # limit of nested brackets and braces; no job has ten levels
_SEQUENCE = "tag:yaml.org,2002:seq"
_MAPPING = "tag:yaml.org,2002:map"


def load_source(source: Union[str, bytes, Mapping[str, Any]], path: str = "") -> Mapping[str, Any]:
    """Return the mapping that ``source`` is or contains. ``path`` prefixes the paths of problems. Raises SpecError."""
    if isinstance(source, Mapping):
        return source
    if isinstance(source, bytes):
        try:
            source = source.decode()
        except UnicodeDecodeError as error:
            raise SpecError([Problem(path, NOT_GIVEN, f"not UTF-8: {error}")]) from error
    if not isinstance(source, str):
        raise SpecError([Problem(path, source, "must be YAML, JSON or a mapping")])
    problems: list[Problem] = []
    plain = _load_text(source.lstrip("\ufeff"), path, problems)
    if problems:
        raise SpecError(problems)
    if not isinstance(plain, Mapping):
        message = "is empty" if plain is None else "must be a mapping of keys to values"
        if isinstance(plain, str):
            message += " (a job file is loaded only if its name ends in .tony.yaml or .tony.json)"
        raise SpecError([Problem(path, NOT_GIVEN if plain is None else plain, message)])
    return plain


def _load_text(text: str, path: str, problems: list[Problem]) -> Any:
    if text.lstrip().startswith("{"):
        try:
            # Numbers also stay as written.
            plain = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)
            return _json_value(plain, path, problems)
        except (ValueError, RecursionError):
            pass  # a YAML mapping in braces, or an error whose position YAML reports
        if (mapping := _python_value(text.strip())) is not None:
            return mapping
    try:
        node = yaml.compose(text, _Loader)
        return None if node is None else _Converter(problems).convert(node, path)
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problems.append(Problem(path, NOT_GIVEN, f"not YAML or JSON{where}: {error.problem or error.context}"))
    except yaml.YAMLError as error:
        problems.append(Problem(path, NOT_GIVEN, f"not YAML or JSON: {error}"))
    except RecursionError:
        problems.append(Problem(path, NOT_GIVEN, "nested too deeply"))
    except (ValueError, OverflowError) as error:  # PyYAML passes an escape such as "\\UFFFFFFFF" to chr()
        problems.append(Problem(path, NOT_GIVEN, f"not YAML or JSON: {error}"))
    return None


def _python_value(text: str) -> Optional[dict[Any, Any]]:
    """Parse a mapping in Python syntax, which Jinja renders and YAML would misread. Return None for other text."""
    try:
        value = ast.literal_eval(text)
        return value if isinstance(value, dict) and repr(value) == text else None
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):  # TypeError: a set within a set
        return None


class _Pairs(list[Any]):
    """Keys and values of a JSON object, including repeated keys."""


def _json_value(plain: Any, path: str, problems: list[Problem]) -> Any:
    if isinstance(plain, _Pairs):
        result: dict[str, Any] = {}
        for key, value in plain:
            below = child(path, key)
            if key in result:
                problems.append(Problem(below, NOT_GIVEN, "the key is given twice"))
            result[key] = _json_value(value, below, problems)
        return result
    if isinstance(plain, list):
        return [_json_value(element, item(path, index), problems) for index, element in enumerate(plain)]
    return plain


class _Loader(yaml.SafeLoader):
    """SafeLoader with only two implicit types: null and merge."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own interface

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Limit nested brackets and braces: PyYAML takes seconds for some hundreds of unclosed ones."""
        if self.flow_level >= _DEEPEST_FLOW:
            raise RecursionError
        super().fetch_flow_collection_start(token)


_Loader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<$"), ["<"])


class _Converter:
    """Converter of YAML nodes to plain values; it converts each anchor once, so that aliases cost nothing."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._done: dict[yaml.Node, Any] = {}
        self._open: set[yaml.Node] = set()
        self._merged = 0  # number of keys that ``<<`` copied; an anchor's keys count at each merge

    def convert(self, node: yaml.Node, path: str) -> Any:
        if node in self._done:
            return self._done[node]
        if node in self._open:
            self._refuse(node, path, "an anchor must not contain itself")
            return None
        self._open.add(node)
        value = self._convert_new(node, path)
        self._open.discard(node)
        self._done[node] = value
        return value

    def _convert_new(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE:
            return [self.convert(element, item(path, index)) for index, element in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return node.value
        if node.tag != _NULL:
            self._refuse(node, path, f"the YAML tag {node.tag} is not allowed")
        return None

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        inherited: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._inherit(inherited, value_node, path)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key must be text")
                continue
            key = key_node.value
            below = child(path, key)
            if key in own:
                self._refuse(key_node, below, "the key is given twice")
            own[key] = self.convert(value_node, below)
        return {**inherited, **own}

    def _inherit(self, inherited: dict[str, Any], node: yaml.Node, path: str) -> None:
        """Merge ``<<``: the first mapping that has a key wins, and the mapping's own keys take precedence."""
        value = self.convert(node, child(path, "<<"))
        for mapping in value if isinstance(value, list) else [value]:
            if not isinstance(mapping, dict):
                self._refuse(node, child(path, "<<"), "must refer to mappings")
                return
            self._merged += len(mapping)
            if self._merged > _MOST_MERGED:
                self._refuse(node, child(path, "<<"), f"more than {_MOST_MERGED} keys are merged in total")
                return
            for key, below in mapping.items():
                inherited.setdefault(key, below)

    def _refuse(self, node: yaml.Node, path: str, message: str) -> None:
        self._problems.append(Problem(path, NOT_GIVEN, f"{message} (line {node.start_mark.line + 1})"))


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``override``, without changing either argument.

    Mappings merge key by key, and all other values replace (lists as a whole). ``None`` deletes the key, if it exists.
    """
    merged = dict(base)
    for key, value in override.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


DEFAULT = "default"

_NOT_SAID: Any = object()


@attrs.frozen
class Layer:
    """A job or a part of a job, with its origin."""

    origin: str  # name for messages: "the job", "overrides"
    plain: Mapping[str, Any]


@attrs.frozen
class Layers:
    """Parts of a job in order of precedence, the lowest first; see ``merge``."""

    lowest_first: Sequence[Layer]

    def merged(self) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for layer in self.lowest_first:
            whole = merge(whole, layer.plain)
        return whole

    def of(self, origin: str) -> Mapping[str, Any]:
        """Return the layer with this origin, or an empty mapping if there is none."""
        return next((layer.plain for layer in self.lowest_first if layer.origin == origin), {})

    def over(self, plain: Mapping[str, Any], origin: str) -> Layers:
        """Return these layers with a new layer on top."""
        return Layers([*self.lowest_first, Layer(origin, plain)])

    def origin(self, path: Sequence[str]) -> str:
        """Return the origin of a key's value, or DEFAULT.

        DEFAULT means that no layer has the key, or that the highest layer with the key deletes it.
        """
        for layer in reversed(self.lowest_first):
            said = _said(layer.plain, path)
            if said is None:
                return DEFAULT
            if said is not _NOT_SAID:
                return layer.origin
        return DEFAULT


def _said(plain: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return a layer's value of a key, None if the layer deletes the key, or _NOT_SAID if it lacks the key.

    If a layer has a scalar in place of a mapping, the scalar is the value of every key below it. An example is an input
    that is written as its path.
    """
    found: Any = plain
    for name in path:
        if not isinstance(found, Mapping):
            return found
        if name not in found:
            return _NOT_SAID
        found = found[name]
    return found


# The only definition of the keys that overrides may always change. A pattern allows a key and everything below it, and
# its ``*`` matches a name or a part of a name.
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
MOST_KEYS = 10_000  # keys and list elements in overrides; YAML's aliases can make billions from a few lines

_LONGEST_PATTERN = 300  # characters
_DEEPEST = 20  # number of names of a key in a message

_REFUSED = (
    "may not be overridden. The key comes from this run's rendered `overrides`. The DAG's author can allow this "
    'override with allowed_overrides=["%s"] of the operator'
)


@attrs.frozen
class Patterns:
    """Patterns of a job's keys, such as ``tasks.*.env.LR``."""

    texts: Sequence[str]

    def allow(self, path: tuple[str, ...]) -> bool:
        return any(_covers(text.split("."), path) for text in self.texts)


def _covers(pattern: Sequence[str], path: Sequence[str]) -> bool:
    return len(pattern) <= len(path) and all(map(fnmatchcase, path, pattern))


def check_overrides(overrides: Mapping[str, Any], job: Mapping[str, Any], allowed: Sequence[str] = ()) -> None:
    """Check that overrides change only allowed keys. ``job`` does not contain the overrides yet.

    ``allowed``: patterns of the DAG's author, in addition to ALLOWED_BY_DEFAULT. Raises SpecError with every key that
    is not allowed.
    """
    try:
        too_many = any(islice(_members(overrides), MOST_KEYS, None))
        given = [] if too_many else list(leaf_keys(overrides))
    except RecursionError as error:
        raise SpecError([Problem("overrides", NOT_GIVEN, "nested too deeply")]) from error
    if too_many:
        raise SpecError([Problem("overrides", NOT_GIVEN, f"more than {MOST_KEYS} keys and list elements")])
    patterns = Patterns([*ALLOWED_BY_DEFAULT, *allowed])
    touched = {_touched(path, job): value for path, value in given}
    refused = [(path, value) for path, value in touched.items() if not patterns.allow(path)]
    # Format only the listed keys, because each text includes all keys above it and may be long.
    some = refused if len(refused) <= MOST_LISTED else refused[: MOST_LISTED - 1]
    problems = [Problem(dotted_key(path), value, _REFUSED % _pattern(path)) for path, value in some]
    if more := len(refused) - len(some):
        problems.append(Problem("overrides", NOT_GIVEN, f"{more} more keys may not be overridden"))
    if problems:
        raise SpecError(problems)


def _pattern(path: Sequence[str]) -> str:
    text = ".".join(path) if sum(map(len, path)) < _LONGEST_PATTERN else ""
    return text or dotted_key(path[:3])


def _members(plain: object) -> Iterator[bool]:
    """Yield True for each key and each list element, at any depth."""
    inner = plain.values() if isinstance(plain, Mapping) else plain if isinstance(plain, (list, tuple)) else ()
    for each in inner:
        yield True
        yield from _members(each)


def _touched(path: tuple[str, ...], job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key that an override sets or deletes, or the key of the task type if the job lacks this type.

    Otherwise, allowed keys such as sizes could add a task type to a job whose types all run the same function
    (``@task.tony``).
    """
    tasks = job.get("tasks")
    known = {str(name) for name in tasks} if isinstance(tasks, Mapping) else set()
    return path[:2] if path[0] == "tasks" and len(path) > 1 and path[1] not in known else path


def dotted_key(path: Sequence[str]) -> str:
    """Format a key for messages: ``tasks.worker.memory``. Keys deeper than in any job are cut."""
    text = ""
    for name in path[:_DEEPEST]:
        text = child(text, name)
    return text if len(path) <= _DEEPEST else f"{text}…"


Source = Union[str, bytes, Mapping[str, Any]]


def parse_job(source: Union[Source, JobSpec], *, overrides: Optional[Source] = None) -> JobSpec:
    """Return the job that ``source`` describes, with ``overrides`` merged over it (see ``merge``), valid as a whole.

    Raises SpecError with all problems at once, and no other error, for any text or mapping. Changes neither argument. A
    null equals a missing key. An empty text, which a template may render, is null where the default is null.
    """
    plain = to_plain(without_tensorboard_task(source)) if isinstance(source, JobSpec) else load_source(source)
    try:
        if overrides is not None:
            plain = merge(plain, load_source(overrides, "overrides"))
        return _parse(plain)
    except RecursionError as error:
        raise SpecError([Problem("", NOT_GIVEN, "nested too deeply")]) from error


def _parse(plain: Mapping[str, Any]) -> JobSpec:
    reader = Reader()
    job = reader.read_job(plain)
    problems = list(reader.problems)
    unread = {problem.path for problem in problems}
    for problem in validate(job):
        # The reader replaces unreadable values by stand-ins, whose problems would mislead.
        if problem.path not in unread and problem.path not in reader.partly_read:
            written = reader.values_as_written.get(problem.path, problem.value)
            problems.append(attrs.evolve(problem, value=written))
    if problems:
        raise SpecError(problems)
    return with_tensorboard_task(job)


def partial_problems(plain: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a partial job: wrong keys and values. Other parts may provide missing keys."""
    reader = Reader()
    try:
        reader.read_job(plain)
    except RecursionError:
        return [Problem("", NOT_GIVEN, "nested too deeply")]
    return [problem for problem in reader.problems if problem.value is not NOT_GIVEN]

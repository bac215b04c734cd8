"""Reading text into plain mappings, lists and scalars.

YAML is read safely and by one rule instead of YAML 1.1's guesses: a plain scalar is the text as written, except that
``null``, ``~`` and nothing are null. So ``on``, ``010``, ``1:30`` and ``1.10`` stay what they are, in an environment
above all, and numbers and truth values are read where the model wants them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

import yaml

from tony_provider.runtime.spec.problems import NOT_GIVEN, Problem, SpecError, child, item

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp", "value")}
_MOST_MERGED = 100_000
_DEEPEST_FLOW = 100  # brackets and braces within each other; no job has ten
_SEQUENCE = "tag:yaml.org,2002:seq"
_MAPPING = "tag:yaml.org,2002:map"


def load_source(source: Union[str, bytes, Mapping[str, Any]], path: str = "") -> Mapping[str, Any]:
    """The mapping that ``source`` is or holds. ``path`` stands before each problem's own. Raises SpecError."""
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
            message += " (a file with one is only loaded when its name ends in .tony.yaml or .tony.json)"
        raise SpecError([Problem(path, NOT_GIVEN if plain is None else plain, message)])
    return plain


def _load_text(text: str, path: str, problems: list[Problem]) -> Any:
    if text.lstrip().startswith("{"):
        try:
            # Numbers, too, stay as written.
            plain = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)
            return _json_value(plain, path, problems)
        except (ValueError, RecursionError):
            pass  # YAML's own way of writing a mapping in braces, or an error that YAML can place
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
    except (ValueError, OverflowError) as error:  # PyYAML lets an escape such as "\\UFFFFFFFF" fall through to chr()
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
    """A JSON object's keys and values, the repeated ones included."""


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
    """SafeLoader's scanner, parser and composer, with two implicit types left: null and merge."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own interface

    def fetch_flow_collection_start(self, token: Any) -> None:
        """A bracket or brace: PyYAML takes seconds for some hundreds of them that are not closed."""
        if self.flow_level >= _DEEPEST_FLOW:
            raise RecursionError
        super().fetch_flow_collection_start(token)


_Loader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<$"), ["<"])


class _Converter:
    """Plain values from YAML's nodes; an anchor's value is made once, so that aliases cost nothing."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._done: dict[yaml.Node, Any] = {}
        self._open: set[yaml.Node] = set()
        self._merged = 0  # keys, by ``<<``: those of an anchor count each time, since each of them is made anew

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
        """``<<``: keys of the mappings named, the first that has one wins, the mapping's own before all."""
        value = self.convert(node, child(path, "<<"))
        for mapping in value if isinstance(value, list) else [value]:
            if not isinstance(mapping, dict):
                self._refuse(node, child(path, "<<"), "must name mappings")
                return
            self._merged += len(mapping)
            if self._merged > _MOST_MERGED:
                self._refuse(node, child(path, "<<"), f"more than {_MOST_MERGED} keys are merged in all")
                return
            for key, below in mapping.items():
                inherited.setdefault(key, below)

    def _refuse(self, node: yaml.Node, path: str, message: str) -> None:
        self._problems.append(Problem(path, NOT_GIVEN, f"{message} (line {node.start_mark.line + 1})"))

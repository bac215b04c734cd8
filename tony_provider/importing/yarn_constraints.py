"""YARN's placement constraints, as other systems write them: here they are rules of a task type's ``placement``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from tony_provider.importing.keys import BadValue
from tony_provider.importing.values import number
from tony_provider.runtime.spec.placement import SELF, TagTarget

_ANY_NUMBER = 2**31 - 1  # Java's Integer.MAX_VALUE
_SCOPES = ("node", "rack")
_JOINED = re.compile(r"(and|or)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_DEEPEST = 20


@attrs.frozen
class Rules:
    """What is wanted of a place: rules about other containers, and attributes of the node."""

    constraints: list[dict[str, Any]] = attrs.field(factory=list)
    attributes: list[str] = attrs.field(factory=list)

    def __add__(self, other: Rules) -> Rules:
        return Rules([*self.constraints, *other.constraints], [*self.attributes, *other.attributes])


def read_expression(text: str, own: Collection[str], depth: int = 0) -> Rules:
    """What an expression of YARN's says (PlacementConstraintParser of Hadoop 3.2 on). Raises BadValue.

    ``own``: the tags of the containers that it places.
    """
    if depth > _DEEPEST:
        raise BadValue("is nested too deeply")
    if joined := _JOINED.fullmatch(text.strip()):
        if joined[1].lower() == "or":
            raise BadValue("has an alternative (or): rules of `placement` hold all together")
        parts = [read_expression(part, own, depth + 1) for part in _parts(joined[2])]
        return sum(parts, Rules())
    words = [word.strip() for word in text.split(",") if word.strip()]
    kind = words[0].lower() if words else ""
    if kind in ("in", "notin", "cardinality"):
        return Rules(list(_about_tags(kind, words[1:], own)))
    return Rules([], [_attribute(words, text)])


def _about_tags(kind: str, words: list[str], own: Collection[str]) -> Iterator[dict[str, Any]]:
    least_words = 4 if kind == "cardinality" else 2
    if len(words) < least_words or words[0].lower() not in _SCOPES:
        raise BadValue(f"should be {kind},node or rack,TAG" + (",MIN,MAX" if kind == "cardinality" else ""))
    scope, tags = words[0].lower(), words[1:]
    if kind == "notin":
        yield apart(tags, scope)
    elif kind == "in":
        yield from (beside([tag], scope) for tag in tags)
    else:
        *tags, least, most = tags
        for tag in tags:
            yield from counted(tag, scope, number(least), number(most), own)


def _attribute(words: list[str], text: str) -> str:
    if len(words) != 1 or not re.fullmatch(r"[^=!]+!?=[^=!]+", words[0]):
        several = len(words) > 1 and "=" in words[0]
        raise BadValue(
            "an attribute has one value here" if several else f"is no placement constraint that YARN reads: {text!r}"
        )
    return words[0]


def _parts(text: str) -> Iterator[str]:
    """Those between colons that are in no brackets."""
    depth, begin = 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == ":" and depth == 0:
            yield text[begin:index]
            begin = index + 1
    yield text[begin:]


# -- rules of ours -----------------------------------------------------------------------------------------------------


def beside(tags: list[str], scope: str) -> dict[str, Any]:
    """Only beside a container that has one of the tags."""
    return {"affinity": tags, **_of(scope)}


def apart(tags: list[str], scope: str) -> dict[str, Any]:
    """Beside no container that has one of the tags."""
    return {"anti_affinity": tags, **_of(scope)}


def counted(tag: str, scope: str, least: int, most: int, own: Collection[str]) -> Iterator[dict[str, Any]]:
    """Beside so many that have the tag; nothing where that is any number.

    YARN counts those that are there before, and ``max`` of ours the container itself, too, where it has the tag.
    """
    if most <= 0:
        yield apart([tag], scope)
    elif least > 0 or most < _ANY_NUMBER:
        rule: dict[str, Any] = {"cardinality": tag}
        if least > 0:
            rule["min"] = least
        if most < _ANY_NUMBER:
            rule["max"] = most + 1 if _is_own(tag, own) else most
        yield {**rule, **_of(scope)}


def _is_own(tag: str, own: Collection[str]) -> bool:
    try:
        target = TagTarget.parse(tag)
    except ValueError:
        return False
    return target.own and target.tag in own


def _of(scope: str) -> Mapping[str, str]:
    return {} if scope == _SCOPES[0] else {"scope": scope}


def own_tags_in(rules: Rules) -> Iterator[str]:
    """The tags of the application itself that the rules name."""
    for rule in rules.constraints:
        named = [
            *rule.get("affinity", []),
            *rule.get("anti_affinity", []),
            *([rule["cardinality"]] if "cardinality" in rule else []),
        ]
        for text in named:
            try:
                target = TagTarget.parse(text)
            except ValueError:
                continue
            if target.namespace == SELF:
                yield target.tag

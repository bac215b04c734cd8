"""The placement policy of a component of YARN's services: here it is the task type's ``placement``, and its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tony_provider.importing.draft import Draft, Path
from tony_provider.importing.keys import BadValue
from tony_provider.importing.values import below, number
from tony_provider.importing.yarn_constraints import apart, beside, counted

_KINDS = ("AFFINITY", "ANTI_AFFINITY", "AFFINITY_WITH_CARDINALITY")
_ANY_NUMBER = 2**31 - 1
_FIELDS = (
    "name",
    "type",
    "scope",
    "target_tags",
    "node_attributes",
    "node_partitions",
    "min_cardinality",
    "max_cardinality",
)


def put_placement(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Each constraint by itself: one that has no counterpart is listed, and the others are carried over."""
    constraints = value.get("constraints") if isinstance(value, Mapping) else None
    if not isinstance(constraints, list):
        raise BadValue("should be a mapping with a list of `constraints`")
    for index, each in enumerate(constraints):
        told = f"{key}.constraints[{index}]"
        try:
            _constraint(draft, told, below(each), names[0])
        except BadValue as error:
            draft.leave(told, str(error), each)


def _constraint(draft: Draft, key: str, given: Mapping[str, Any], component: str) -> None:
    kind, scope = str(given.get("type", "")).upper(), str(given.get("scope", "")).lower()
    if kind not in _KINDS or scope not in ("node", "rack"):
        raise BadValue(f"should have a type, one of {', '.join(_KINDS)}, and a scope, NODE or RACK")
    for name in given:
        if name not in _FIELDS:
            draft.leave(f"{key}.{name}", "unknown key", given[name])
    ours = draft.task_type(component)
    tags = [_tag(draft, each) for each in _listed(given, "target_tags")]
    _put_rules(draft, key, ours, list(_rules(given, kind, scope, tags, ours)))
    _put_attributes(draft, key, ours, kind, below(given, "node_attributes"))
    _put_label(draft, key, ours, _listed(given, "node_partitions"))


def _rules(given: Mapping[str, Any], kind: str, scope: str, tags: list[str], ours: str) -> list[dict[str, Any]]:
    if not tags:
        return []
    if kind == "AFFINITY":
        return [beside(tags, scope)]
    if kind == "ANTI_AFFINITY":
        return [apart(tags, scope)]
    if len(tags) > 1:
        raise BadValue("counts containers of several components together; a rule of `placement` counts those of one")
    least, most = given.get("min_cardinality"), given.get("max_cardinality")
    return list(counted(tags[0], scope, number(least or 0), number(_ANY_NUMBER if most is None else most), [ours]))


def _tag(draft: Draft, name: str) -> str:
    """Containers have their component's name as a tag, and here their type's."""
    return draft.known_type(name) or name


def _listed(given: Mapping[str, Any], name: str) -> list[str]:
    found = given.get(name) or []
    return [str(each) for each in found] if isinstance(found, list) else [str(found)]


def _put_rules(draft: Draft, key: str, ours: str, rules: list[dict[str, Any]]) -> None:
    place: Path = ("tasks", ours, "placement", "constraints")
    for rule in rules:
        draft.put(place, [*(draft.get(place) or []), rule], key.rpartition(".")[0])


def _put_attributes(draft: Draft, key: str, ours: str, kind: str, attributes: Mapping[str, Any]) -> None:
    for name, values in attributes.items():
        found = values if isinstance(values, list) else [values]
        if kind == _KINDS[2] or len(found) != 1:
            draft.leave(f"{key}.node_attributes.{name}", "an attribute has one value here, and is not counted", values)
            continue
        sign = "=" if kind == "AFFINITY" else "!="
        draft.add(("tasks", ours, "placement", "attributes"), f"{name}{sign}{found[0]}", f"{key}.node_attributes")


def _put_label(draft: Draft, key: str, ours: str, partitions: list[str]) -> None:
    """Where containers of the component can run, whatever the type of the constraint."""
    if len(partitions) == 1:
        draft.put(("tasks", ours, "node_label"), partitions[0], f"{key}.node_partitions")
    elif partitions:
        draft.leave(f"{key}.node_partitions", "a container has one `node_label`; YARN heeds the first", partitions)

"""Placement: on which nodes the containers of a task type may be, beside which others, and apart from which."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Optional

import attrs

SELF = "self"  # YARN's namespace of an application's own tags; the default
OTHERS = "not-self"
EVERY = "all"
BY_ID = "app-id"  # followed by an application's id
BY_APPLICATION_TAG = "app-tag"  # followed by a tag that applications have
_WITH_NAME = (BY_ID, BY_APPLICATION_TAG)
NAMESPACES = (SELF, OTHERS, EVERY, *_WITH_NAME)

NODE_WAIT = 30.0  # seconds that YARN is asked for wanted nodes and racks alone


class PlacementScope(str, Enum):
    """What containers share, or do not share, that are together or apart."""

    NODE = "node"
    RACK = "rack"


@attrs.frozen
class PlacementConstraint:
    """A rule about the containers beside which those of a task type may be. One of the first three is given."""

    affinity: list[str] = attrs.field(factory=list)  # tags: only beside a container that has one of them
    anti_affinity: list[str] = attrs.field(factory=list)  # tags: beside no container that has one of them
    cardinality: Optional[str] = None  # a tag: beside min to max containers that have it
    min: int = 0  # of cardinality, there before
    max: Optional[int] = None  # of cardinality, itself counted where it has the tag; default: any number
    scope: PlacementScope = PlacementScope.NODE  # what is shared: a node or a rack

    @property
    def tags(self) -> list[str]:
        """Every tag that the rule names, as written."""
        return [*self.affinity, *self.anti_affinity, *([] if self.cardinality is None else [self.cardinality])]


@attrs.frozen
class Placement:
    """Where the containers of a task type may be."""

    nodes: list[str] = attrs.field(factory=list)  # host names, as YARN has them
    racks: list[str] = attrs.field(factory=list)  # as YARN's topology has them: /rack1
    required: bool = False  # nowhere else than on these nodes and racks; default: wanted for 30 s, then anywhere
    tags: list[str] = attrs.field(factory=list)  # allocation tags beside the type's name, for the rules of others
    constraints: list[PlacementConstraint] = attrs.field(factory=list)  # all of them hold when a container is placed
    attributes: list[str] = attrs.field(factory=list)  # of the node, all of them: ``disk=ssd``, ``disk!=hdd``

    @property
    def by_rules(self) -> bool:
        """Whether YARN places the containers by rules and tags, for which there are requests of their own."""
        return bool(self.tags or self.constraints or self.attributes)


@attrs.frozen
class TagTarget:
    """A tag of a rule, taken apart."""

    tag: str
    namespace: str = SELF  # as YARN writes it, such as ``app-id/application_1_0001``

    @classmethod
    def parse(cls, text: str) -> TagTarget:
        """Raises ValueError for what is no tag."""
        parts = text.split("/")
        if len(parts) == 1:
            return cls(text)
        expected = 3 if parts[0] in _WITH_NAME else 2
        if parts[0] not in NAMESPACES or len(parts) != expected or not all(parts):
            raise ValueError(
                f"what stands before a tag is {SELF}/, {OTHERS}/, {EVERY}/, {BY_ID}/<application id>/ or "
                f"{BY_APPLICATION_TAG}/<tag of applications>/"
            )
        return cls(parts[-1], "/".join(parts[:-1]))

    @property
    def own(self) -> bool:
        """Whether it may be a tag of the application itself."""
        return self.namespace in (SELF, EVERY)


@attrs.frozen
class AttributeRule:
    """What an attribute of the node must be, or must not be."""

    name: str  # as YARN has it, with or without its prefix
    value: str
    equal: bool = True

    @classmethod
    def parse(cls, text: str) -> AttributeRule:
        """Raises ValueError for what is none."""
        for sign, equal in (("!=", False), ("=", True)):
            name, found, value = text.partition(sign)
            if found and name.strip() and value.strip():
                return cls(name.strip(), value.strip(), equal)
            if found:
                break
        raise ValueError("is NAME=VALUE or NAME!=VALUE, such as disk=ssd")


def own_tags(task_type: str, placement: Optional[Placement]) -> list[str]:
    """The allocation tags of a type's containers."""
    return list(dict.fromkeys([task_type, *(placement.tags if placement else [])]))


def targets(placement: Placement) -> Iterator[TagTarget]:
    """What its rules name; raises ValueError for what is no tag."""
    for constraint in placement.constraints:
        yield from map(TagTarget.parse, constraint.tags)


def describe_placement(placement: Placement) -> str:
    """For people, after the size of a container: ``on node1 or node2, apart from ps``; empty where it says nothing."""
    parts = []
    if placement.nodes or placement.racks:
        where = " or ".join([*placement.nodes, *placement.racks])
        parts.append(f"only on {where}" if placement.required else f"rather on {where}")
    for rule in placement.constraints:
        of = "" if rule.scope is PlacementScope.NODE else " by rack"
        if rule.affinity:
            parts.append(f"together with {' or '.join(rule.affinity)}{of}")
        if rule.anti_affinity:
            parts.append(f"apart from {' and '.join(rule.anti_affinity)}{of}")
        if rule.cardinality is not None:
            most = "" if rule.max is None else f" to {rule.max}"
            parts.append(f"with {rule.min}{most} {rule.cardinality}{of}")
    parts += placement.attributes
    return ", ".join(parts)

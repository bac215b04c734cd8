"""Placement of task types: their nodes, and rules for containers on the same node or rack."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Optional

import attrs

SELF = "self"  # YARN's namespace of the application's own tags, which is the default
OTHERS = "not-self"
EVERY = "all"
BY_ID = "app-id"  # followed by an application ID
BY_APPLICATION_TAG = "app-tag"  # followed by an application tag
_WITH_NAME = (BY_ID, BY_APPLICATION_TAG)
NAMESPACES = (SELF, OTHERS, EVERY, *_WITH_NAME)

NODE_WAIT = 30.0  # seconds in which only the preferred nodes and racks are requested from YARN


class PlacementScope(str, Enum):
    """Scope within which containers are together or apart."""

    NODE = "node"
    RACK = "rack"


@attrs.frozen
class PlacementConstraint:
    """Rule about the containers on the same node or rack. Exactly one of the first three keys is given."""

    affinity: list[str] = attrs.field(factory=list)  # tags: only next to a container that has one of these tags
    anti_affinity: list[str] = attrs.field(factory=list)  # tags: not next to a container that has one of these tags
    cardinality: Optional[str] = None  # a tag: only where min to max containers have this tag
    min: int = 0  # lower limit of cardinality: number of containers already placed there
    max: Optional[int] = None  # upper limit of cardinality, including this container if it has the tag; default: none
    scope: PlacementScope = PlacementScope.NODE  # scope of the rule: a node or a rack

    @property
    def tags(self) -> list[str]:
        """Every tag that the rule names, as written."""
        return [*self.affinity, *self.anti_affinity, *([] if self.cardinality is None else [self.cardinality])]


@attrs.frozen
class Placement:
    """Nodes, racks and rules for the containers of a task type."""

    nodes: list[str] = attrs.field(factory=list)  # host names, as YARN lists them
    racks: list[str] = attrs.field(factory=list)  # as in YARN's topology: /rack1
    required: bool = False  # only these nodes and racks; default: preferred for 30 s, then any node
    tags: list[str] = attrs.field(factory=list)  # allocation tags, in addition to the type's name, that rules may use
    constraints: list[PlacementConstraint] = attrs.field(factory=list)  # must all hold when a container is placed
    attributes: list[str] = attrs.field(factory=list)  # node attributes, all required: ``disk=ssd``, ``disk!=hdd``

    @property
    def by_rules(self) -> bool:
        """Whether YARN places the containers by tags, rules or attributes, which needs scheduling requests."""
        return bool(self.tags or self.constraints or self.attributes)


@attrs.frozen
class TagTarget:
    """Tag in a rule, with its namespace."""

    tag: str
    namespace: str = SELF  # as YARN writes it, such as ``app-id/application_1_0001``

    @classmethod
    def parse(cls, text: str) -> TagTarget:
        """Parse a tag with an optional namespace. Raises ValueError if it is invalid."""
        parts = text.split("/")
        if len(parts) == 1:
            return cls(text)
        expected = 3 if parts[0] in _WITH_NAME else 2
        if parts[0] not in NAMESPACES or len(parts) != expected or not all(parts):
            raise ValueError(
                f"the namespace before a tag must be {SELF}/, {OTHERS}/, {EVERY}/, {BY_ID}/<application id>/ or "
                f"{BY_APPLICATION_TAG}/<tag of applications>/"
            )
        return cls(parts[-1], "/".join(parts[:-1]))

    @property
    def own(self) -> bool:
        """Whether the tag may match containers of the application itself."""
        return self.namespace in (SELF, EVERY)


@attrs.frozen
class AttributeRule:
    """Required or excluded value of a node attribute."""

    name: str  # YARN's name, with or without its prefix
    value: str
    equal: bool = True

    @classmethod
    def parse(cls, text: str) -> AttributeRule:
        """Parse ``NAME=VALUE`` or ``NAME!=VALUE``. Raises ValueError for other text."""
        for sign, equal in (("!=", False), ("=", True)):
            name, found, value = text.partition(sign)
            if found and name.strip() and value.strip():
                return cls(name.strip(), value.strip(), equal)
            if found:
                break
        raise ValueError("must be NAME=VALUE or NAME!=VALUE, such as disk=ssd")


def own_tags(task_type: str, placement: Optional[Placement]) -> list[str]:
    """Return the allocation tags of a type's containers: the type's name, then ``tags`` of its placement."""
    return list(dict.fromkeys([task_type, *(placement.tags if placement else [])]))


def targets(placement: Placement) -> Iterator[TagTarget]:
    """Yield the tags that the placement's rules name. Raises ValueError for an invalid tag."""
    for constraint in placement.constraints:
        yield from map(TagTarget.parse, constraint.tags)


def describe_placement(placement: Placement) -> str:
    """Describe a placement for a message: ``only on node1 or node2, apart from ps``. May be empty."""
    parts = []
    if placement.nodes or placement.racks:
        where = " or ".join([*placement.nodes, *placement.racks])
        parts.append(f"only on {where}" if placement.required else f"preferably on {where}")
    for rule in placement.constraints:
        of = "" if rule.scope is PlacementScope.NODE else " in the same rack"
        if rule.affinity:
            parts.append(f"together with {' or '.join(rule.affinity)}{of}")
        if rule.anti_affinity:
            parts.append(f"apart from {' and '.join(rule.anti_affinity)}{of}")
        if rule.cardinality is not None:
            most = "" if rule.max is None else f" to {rule.max}"
            parts.append(f"with {rule.min}{most} {rule.cardinality}{of}")
    parts += placement.attributes
    return ", ".join(parts)

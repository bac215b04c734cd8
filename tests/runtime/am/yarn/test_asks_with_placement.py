"""What YARN is asked for where a job says on which nodes, beside which containers and apart from which."""

from __future__ import annotations

from typing import Any

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.am.yarn.container_requests import Ask, ContainerAsks
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.jobspec.placement import NODE_WAIT, Placement

ANY_NUMBER = 2**31 - 1
RACKS = {"n1": "/left", "n2": "/left", "n3": "/right"}


def request(
    key: int = 1, *, tags: tuple[str, ...] = (), label: str | None = None, **placement: Any
) -> ContainerRequest:
    where = from_plain(placement, Placement) if placement else None
    return ContainerRequest(key, 1, 512, 1, node_label=label, placement=where, tags=list(tags))


def asked(where: list[yarn.ResourceRequestProto]) -> dict[str, tuple[int, bool]]:
    return {each.resource_name: (each.num_containers, each.relax_locality) for each in where}


def rules(ask: Ask) -> list[tuple[Any, ...]]:
    """The simple constraints of a request: scope, targets, numbers."""
    constraint = ask.scheduling_request().placementConstraint
    several = [each.simpleConstraint for each in constraint.compositeConstraint.childConstraints]
    simple = several or ([constraint.simpleConstraint] if constraint.HasField("simpleConstraint") else [])
    return [
        (
            each.scope,
            [(target.targetKey, list(target.targetValues)) for target in each.targetExpressions],
            each.minCardinality,
            each.maxCardinality,
        )
        for each in simple
    ]


def test_a_request_without_placement_is_what_it_always_was() -> None:
    assert asked(Ask(request(label="gpu")).resource_requests({})) == {"*": (1, True)}
    assert not Ask(request()).by_rules


def test_nodes_are_asked_for_with_their_racks_and_nowhere_else() -> None:
    said = Ask(request(nodes=["n1", "n3"], required=True, label="gpu")).resource_requests(RACKS)
    expected = {"*": (1, False), "/left": (1, False), "/right": (1, False), "n1": (1, True), "n3": (1, True)}
    assert asked(said) == expected
    # YARN refuses a label on anything but "*".
    assert {each.resource_name for each in said if each.HasField("node_label_expression")} == {"*"}


def test_a_rack_is_asked_for_by_its_nodes() -> None:
    said = asked(Ask(request(racks=["/left"])).resource_requests(RACKS))
    assert said == {"*": (1, False), "/left": (1, False), "n1": (1, True), "n2": (1, True)}


def test_wanted_nodes_are_waited_for_and_then_left() -> None:
    asks = ContainerAsks()
    asks.request([request(1, nodes=["n1"]), request(2, nodes=["n1"], required=True)], 100.0)
    asks.said(asks.next(100.0))
    assert not asks.next(100.0 + NODE_WAIT - 1).asks
    (late,) = asks.next(100.0 + NODE_WAIT).asks
    assert (late.key, late.anywhere) == (1, True)
    assert asked(late.resource_requests(RACKS)) == {"*": (1, True), "/left": (1, True), "n1": (1, True)}


def test_what_was_granted_or_withdrawn_is_not_asked_for_anywhere_later() -> None:
    asks = ContainerAsks()
    asks.request([request(1, nodes=["n1"]), request(2, nodes=["n1"])], 0.0)
    asks.said(asks.next(0.0))
    assert asks.granted(1, "n1:1")
    asks.cancel([2])
    asks.said(asks.next(1.0))
    assert not asks.next(2 * NODE_WAIT).asks


def test_a_resource_manager_that_has_forgotten_is_told_what_holds_now() -> None:
    asks = ContainerAsks()
    asks.request([request(1, nodes=["n1"])], 0.0)
    asks.said(asks.next(NODE_WAIT))
    asks.start_again()
    (said,) = asks.next(NODE_WAIT).asks
    assert said.anywhere


def test_to_be_apart_from_several_is_a_rule_for_each() -> None:
    ask = Ask(request(tags=("ps",), constraints=[{"anti_affinity": ["ps", "not-self/serving"]}]))
    assert rules(ask) == [
        ("node", [("self", ["ps"])], 0, 0),
        ("node", [("not-self", ["serving"])], 0, 0),
    ]
    assert list(ask.scheduling_request().allocationTags) == ["ps"]


def test_to_be_together_with_one_of_several_is_one_rule_for_each_namespace() -> None:
    ask = Ask(request(tags=("w",), constraints=[{"affinity": ["a", "b", "all/c"], "scope": "rack"}]))
    assert rules(ask) == [
        ("rack", [("self", ["a", "b"])], 1, ANY_NUMBER),
        ("rack", [("all", ["c"])], 1, ANY_NUMBER),
    ]


def test_at_most_so_many_count_the_one_that_comes() -> None:
    """YARN counts those that are there before."""
    own = Ask(request(tags=("w",), constraints=[{"cardinality": "w", "max": 2}]))
    assert rules(own) == [("node", [("self", ["w"])], 0, 1)]
    others = Ask(request(tags=("w",), constraints=[{"cardinality": "ps", "min": 1, "max": 2}]))
    assert rules(others) == [("node", [("self", ["ps"])], 1, 2)]


def test_attributes_of_nodes() -> None:
    ask = Ask(request(tags=("w",), attributes=["nm.yarn.io/disk=ssd", "arch!=arm"]))
    constraint = ask.scheduling_request().placementConstraint.compositeConstraint
    simple = [each.simpleConstraint for each in constraint.childConstraints]
    assert [each.attributeOpCode for each in simple] == [yarn.EQ, yarn.NE]
    assert [(t.targetKey, list(t.targetValues)) for each in simple for t in each.targetExpressions] == [
        ("nm.yarn.io/disk", ["ssd"]),
        ("arch", ["arm"]),
    ]


def test_a_node_label_goes_with_the_rule() -> None:
    partition = ("yarn_node_partition/", ["gpu"])
    ask = Ask(request(tags=("w",), label="gpu", constraints=[{"anti_affinity": ["w"]}]))
    assert rules(ask) == [("node", [("self", ["w"]), partition], 0, 0)]
    assert rules(Ask(request(tags=("w",), label="gpu"))) == [("node", [partition], 1, ANY_NUMBER)]
    assert rules(Ask(request(tags=("w",)))) == []


def test_of_those_that_are_to_be_together_one_is_the_first() -> None:
    together: dict[str, Any] = {"constraints": [{"affinity": ["w"]}, {"anti_affinity": ["ps"]}]}
    asks = ContainerAsks()
    asks.request([request(key, tags=("w",), **together) for key in (1, 2)], 0.0)
    first, second = asks.next(0.0).asks
    assert rules(first) == [("node", [("self", ["ps"])], 0, 0)]
    assert rules(second) == [("node", [("self", ["w"])], 1, ANY_NUMBER), ("node", [("self", ["ps"])], 0, 0)]
    # One that runs already leads those that come later; with it lost, the next one does.
    later = ContainerAsks()
    later.request([request(3, tags=("w",), **together)], 0.0, {"w"})
    assert not later.next(0.0).asks[0].leads
    alone = ContainerAsks()
    alone.request([request(4, tags=("w",), **together)], 0.0, {"ps"})
    assert alone.next(0.0).asks[0].leads


def test_what_found_no_place_is_asked_for_again_and_told_once() -> None:
    asks = ContainerAsks()
    asks.request([request(1, tags=("w",))], 0.0)
    asks.said(asks.next(0.0))
    assert asks.not_placed(1, 1.0)
    assert not asks.next(2.0).asks
    again = asks.next(10.0)
    assert [ask.key for ask in again.asks] == [1]
    asks.said(again)
    assert not asks.not_placed(1, 11.0)
    asks.cancel([1])
    assert not asks.not_placed(1, 12.0)
    asks.said(asks.next(13.0))
    assert not asks.next(100.0).asks


def test_the_two_kinds_of_requests_are_not_said_in_one_call() -> None:
    """Seen: the capacity scheduler passed over the scheduling requests of a call that had resource requests, too."""
    asks = ContainerAsks()
    asks.request([request(1), request(2, tags=("w",)), request(3)], 0.0)
    first = asks.next(0.0)
    assert [ask.key for ask in first.asks] == [1, 3]
    asks.said(first)
    assert asks.more
    assert [ask.key for ask in asks.next(0.0).asks] == [2]

"""Placements that no cluster could keep, and such that say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.jobspec.placement import AttributeRule, TagTarget
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job


def job(placement: dict[str, Any], **more: Any) -> dict[str, Any]:
    tasks = {
        "worker": {"command": "true", "instances": 4, "placement": placement, **more},
        "ps": {"command": "true", "placement": {"tags": ["parameters"]}},
        "chief": {"command": "true"},
    }
    return {"framework": "tensorflow", "tasks": tasks}


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    try:
        parse_job(document)
    except SpecError as error:
        return {problem.path.removeprefix("tasks.worker.placement."): problem.message for problem in error.problems}
    return {}


def rules(*several: dict[str, Any]) -> dict[str, Any]:
    return {"constraints": list(several)}


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"nodes": ["node1.example.com"], "racks": ["/dc1/rack2"], "required": True},
        rules({"affinity": ["worker"]}, {"anti_affinity": ["ps", "parameters", "not-self/serving"]}),
        rules({"affinity": ["worker"], "scope": "rack"}, {"anti_affinity": ["worker"]}),
        rules({"affinity": ["worker"]}, {"cardinality": "worker", "max": "4"}),
        rules({"cardinality": "app-tag/nightly/serving", "min": 1}),
        rules({"cardinality": "app-id/application_1_0001/serving", "max": 1}),
        {"attributes": ["disk=ssd", "nm.yarn.io/arch != arm", "arch!=riscv"], "tags": ["fast"]},
    ],
)
def test_what_is_well(good: dict[str, Any]) -> None:
    assert problems_of(job(good)) == {}


@pytest.mark.parametrize(
    ("bad", "path", "says"),
    [
        ({"nodes": ["node1:8042"]}, "nodes[0]", "the node's host name"),
        ({"racks": ["rack1"]}, "racks[0]", "such as /rack1"),
        ({"tags": ["a/b"]}, "tags[0]", "letters, digits"),
        ({"attributes": ["disk"]}, "attributes[0]", "NAME=VALUE"),
        ({"attributes": ["disk!="]}, "attributes[0]", "NAME=VALUE"),
        ({"required": True}, "required", "allowed only with nodes or racks"),
        (rules({}), "constraints[0]", "one of affinity, anti_affinity and cardinality"),
        (rules({"affinity": ["ps"], "cardinality": "ps"}), "constraints[0]", "one of affinity"),
        (rules({"affinity": ["wroker"]}), "constraints[0].affinity", "did you mean worker?"),
        (rules({"affinity": ["serving"]}), "constraints[0].affinity", "for other jobs use not-self/serving"),
        (rules({"affinity": ["other/serving"]}), "constraints[0].affinity", "the namespace before a tag"),
        (rules({"affinity": ["app-tag/serving"]}), "constraints[0].affinity", "the namespace before a tag"),
        (rules({"affinity": ["ps", "not-self/serving"]}), "constraints[0].affinity", "use one rule per namespace"),
        (rules({"affinity": ["ps"], "max": 2}), "constraints[0].max", "allowed only with cardinality"),
        (rules({"cardinality": "ps"}), "constraints[0].cardinality", "needs min or max"),
        (rules({"cardinality": "ps", "min": 3, "max": 2}), "constraints[0].max", "must be at least 3"),
        (rules({"cardinality": "ps", "min": 0, "max": 0}), "constraints[0].max", "anti_affinity"),
        (rules({"cardinality": "ps", "min": -1}), "constraints[0].min", "at least 0"),
        (rules({"affinity": ["ps"], "scopes": "rack"}), "constraints[0].scopes", "did you mean scope?"),
        (rules({"affinity": ["ps"]}, {"anti_affinity": ["ps"]}), "constraints[1].anti_affinity", "contradicts"),
        (
            rules({"affinity": ["ps"]}, {"anti_affinity": ["ps"], "scope": "rack"}),
            "constraints[1].anti_affinity",
            "contradicts the affinity to ps on the same node",
        ),
        (rules({"affinity": ["worker"]}, {"cardinality": "worker", "max": 3}), "constraints[1].max", "must share"),
        (rules({"cardinality": "worker", "min": 1}), "constraints[0].min", "would wait forever"),
        ({"attributes": ["disk=ssd", "disk=hdd"]}, "attributes[1]", "contradicts disk=ssd, so no node matches"),
        ({"attributes": ["disk=ssd", "disk!=ssd"]}, "attributes[1]", "contradicts disk=ssd, so no node matches"),
        ({"nodes": ["a"], "tags": ["fast"]}, "nodes", "with rules and tags"),
        ("anywhere", "", "must be a mapping"),
        (rules("anti_affinity"), "constraints[0]", "must be a mapping"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not(bad: Any, path: str, says: str) -> None:
    found = problems_of(job(bad))
    where = path or "tasks.worker.placement"
    assert list(found) == [where]
    assert says in found[where]


def test_a_type_that_a_rule_of_another_one_names_has_no_nodes() -> None:
    document = job({"nodes": ["a"]})
    document["tasks"]["ps"]["placement"] = rules({"anti_affinity": ["worker"]})
    assert "others' rules name it" in problems_of(document)["nodes"]


@pytest.mark.parametrize(
    ("of_worker", "of_ps", "waits"),
    [
        ({"affinity": ["ps"]}, {"affinity": ["worker"]}, True),
        ({"affinity": ["ps"]}, {"cardinality": "worker", "min": 1}, True),
        ({"affinity": ["ps"], "scope": "rack"}, {"affinity": ["parameters", "worker"]}, False),  # one of its own
        ({"affinity": ["ps", "chief"]}, {"affinity": ["worker"]}, False),
        ({"affinity": ["ps"]}, {"affinity": ["all/worker"]}, False),  # which another application may have
        ({"affinity": ["ps"]}, {"anti_affinity": ["worker"]}, False),
        ({"affinity": ["ps"]}, {"affinity": ["chief"]}, False),
    ],
)
def test_types_that_would_wait_for_each_other(of_worker: dict[str, Any], of_ps: dict[str, Any], waits: bool) -> None:
    document = job(rules(of_worker))
    document["tasks"]["ps"]["placement"] |= rules(of_ps)
    found = problems_of(document)
    assert set(found) == ({"constraints", "tasks.ps.placement.constraints"} if waits else set())
    assert all("ps and worker wait for each other" in message for message in found.values())


def test_one_rule_goes_with_a_node_label_several_do_not() -> None:
    one, several = rules({"anti_affinity": ["worker"]}), rules({"anti_affinity": ["worker", "ps"]})
    assert problems_of(job(one, node_label="gpu")) == {}
    assert (
        "only one rule together with a node label (gpu)" in problems_of(job(several, node_label="gpu"))["constraints"]
    )


def test_which_types_are_placed_by_rules() -> None:
    parsed = parse_job(job(rules({"anti_affinity": ["parameters"]})))
    assert {name: parsed.placed_by_rules(name) for name in parsed.tasks} == {"worker": True, "ps": True, "chief": False}
    others = parse_job(job(rules({"anti_affinity": ["all/chief"]})))
    assert others.placed_by_rules("chief")
    plain = parse_job(job({"nodes": ["a"]}) | {"tasks": {"worker": {"command": "true", "placement": {"nodes": ["a"]}}}})
    assert not plain.placed_by_rules("worker")


@given(st.text(max_size=40))
def test_what_is_no_tag_or_attribute_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        target = TagTarget.parse(text)
    except ValueError:
        pass
    else:
        assert f"{target.namespace}/{target.tag}".endswith(text)
    try:
        rule = AttributeRule.parse(text)
    except ValueError:
        return
    assert rule.name
    assert rule.value

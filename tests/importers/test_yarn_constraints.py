"""YARN's language of placement constraints: whatever is written, it is read as rules of ours, or refused in words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.importers.key_table import BadValue
from tony_provider.importers.yarn_terms import Rules, read_expression

_TAG = st.sampled_from(["worker", "ps", "not-self/serving", "app-id/application_1_0001/x"])
_SCOPE = st.sampled_from(["node", "RACK", "Node"])
_SIMPLE = st.one_of(
    st.builds(
        lambda kind, scope, tags: ",".join([kind, scope, *tags]),
        st.sampled_from(["in", "NOTIN"]),
        _SCOPE,
        st.lists(_TAG, min_size=1, max_size=3),
    ),
    st.builds(
        lambda scope, tag, low, high: f"cardinality,{scope},{tag},{low},{high}",
        _SCOPE,
        _TAG,
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.builds(
        lambda name, sign, value: f"{name}{sign}{value}",
        st.sampled_from(["java", "rm.yarn.io/gpu"]),
        st.sampled_from(["=", "!="]),
        st.sampled_from(["1.8", "true"]),
    ),
)
_EXPRESSION = st.recursive(
    _SIMPLE,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"and({':'.join(parts)})"),
    max_leaves=8,
)


@given(_EXPRESSION)
def test_all_that_yarn_reads_without_an_alternative_is_read(text: str) -> None:
    found = read_expression(text, ["worker"])
    for rule in found.constraints:
        assert len({"affinity", "anti_affinity", "cardinality"} & set(rule)) == 1
        assert rule.get("scope") in (None, "rack")
    assert len(found.attributes) == text.count("=")


@given(st.text(alphabet="andorinotcyel,:()=! 0/w", max_size=60))
def test_anything_else_is_refused_in_words(text: str) -> None:
    with suppress(BadValue):
        read_expression(text, [])


def test_brackets_hold_parts_together() -> None:
    found = read_expression("and(in,node,a:and(notin,rack,b:x=1):y!=2)", [])
    assert found == Rules(
        [{"affinity": ["a"]}, {"anti_affinity": ["b"], "scope": "rack"}],
        ["x=1", "y!=2"],
    )


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("cardinality,node,w,0,0", [{"anti_affinity": ["w"]}]),
        ("cardinality,node,w,0,3", [{"cardinality": "w", "max": 4}]),  # YARN counts those that are there before
        ("cardinality,node,self/w,0,3", [{"cardinality": "self/w", "max": 4}]),
        ("cardinality,node,other,1,3", [{"cardinality": "other", "min": 1, "max": 3}]),
        ("cardinality,node,not-self/w,0,3", [{"cardinality": "not-self/w", "max": 3}]),
        ("cardinality,rack,other,2,2147483647", [{"cardinality": "other", "min": 2, "scope": "rack"}]),
        ("cardinality,node,other,0,2147483647", []),
        ("in,node,a,b", [{"affinity": ["a"]}, {"affinity": ["b"]}]),  # all of them, from Hadoop 3.2 on
    ],
)
def test_what_yarn_counts_is_what_ours_counts(text: str, rules: list[dict[str, object]]) -> None:
    assert read_expression(text, ["w"]).constraints == rules

"""The documented deep merge."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.parsing.parse import merge

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner))
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), VALUES)


def test_mappings_merge_lists_replace_and_null_deletes() -> None:
    base = {"tasks": {"worker": {"memory": "4GiB", "gpus": 1}, "ps": {"gpus": 0}}, "files": ["a", "b"], "queue": "ml"}
    override = {"tasks": {"worker": {"gpus": 2}, "ps": None}, "files": ["c"], "queue": None, "docker": None}
    assert merge(base, override) == {"tasks": {"worker": {"memory": "4GiB", "gpus": 2}}, "files": ["c"]}


def test_a_mapping_in_place_of_something_else_brings_no_nulls() -> None:
    assert merge({"docker": "x"}, {"docker": {"image": "y", "mounts": None}}) == {"docker": {"image": "y"}}


def has_null(value: Any) -> bool:
    """In a mapping, outside lists: there it means nothing to a merge."""
    return isinstance(value, dict) and any(below is None or has_null(below) for below in value.values())


@given(MAPPINGS)
def test_an_empty_override_changes_nothing(base: dict[str, Any]) -> None:
    assert merge(base, {}) == base


@given(MAPPINGS, MAPPINGS)
def test_merging_twice_is_merging_once(base: dict[str, Any], override: dict[str, Any]) -> None:
    once = merge(base, override)
    assert merge(once, override) == once


@given(MAPPINGS)
def test_over_nothing_an_override_is_itself_without_nulls(override: dict[str, Any]) -> None:
    merged = merge({}, override)
    assert not has_null(merged)
    if not has_null(override):
        assert merged == override


@given(MAPPINGS, MAPPINGS)
def test_every_key_of_the_result_comes_from_one_of_them(base: dict[str, Any], override: dict[str, Any]) -> None:
    before = copy.deepcopy((base, override))
    merged = merge(base, override)
    assert (base, override) == before
    for key in {*base, *override}:
        if key in override and override[key] is None:
            assert key not in merged
        elif key not in override:
            assert merged[key] == base[key]
        elif not isinstance(override[key], dict):
            assert merged[key] == override[key]

"""Keys of Airflow's serialization in what a job returns."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.serde import deserialize
from airflow.serialization.enums import Encoding
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.protocol.limits import RESERVED_KEYS, reserved_key


def test_they_are_those_of_this_airflow() -> None:
    names = ("CLASSNAME", "VERSION", "DATA", "SCHEMA_ID", "CACHE", "OLD_TYPE", "OLD_SOURCE", "OLD_DATA")
    serde: Any = pytest.importorskip("airflow.sdk._shared.serialization")
    assert {getattr(serde, name) for name in names} | {each.value for each in Encoding} == RESERVED_KEYS
    assert getattr(serde, "FORBIDDEN_XCOM_KEYS", RESERVED_KEYS) <= RESERVED_KEYS


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
def test_a_key_is_found_however_deep_it_lies(key: str) -> None:
    assert reserved_key({key: 1}) == key
    assert reserved_key({"a": [1, {"b": [{key: None}]}]}) == f"a[1].b[0].{key}"
    assert reserved_key({"text": key, "list": [key], f"{key}_": 1}) is None
    deep: Any = {key: 1}
    for _ in range(5000):
        deep = [deep]
    assert reserved_key(deep)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(sorted(RESERVED_KEYS)), inner),
)


@given(PLAIN)
def test_airflow_reads_what_holds_none_of_them_as_it_is(plain: Any) -> None:
    if reserved_key(plain) is None:
        assert deserialize(plain) == plain

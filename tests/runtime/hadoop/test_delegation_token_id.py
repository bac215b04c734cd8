"""Identifiers of delegation tokens. tests/runtime/storage/test_kerberos.py reads those of a real NameNode."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.delegation_tokens import written
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import DelegationTokenId

names, longs = st.text(max_size=30), st.integers(-(2**63), 2**63 - 1)
ids = st.builds(DelegationTokenId, names, names, names, longs, longs, longs)


@given(ids, st.binary(max_size=20))
def test_what_is_written_is_read_and_what_a_newer_hdfs_adds_is_left_alone(
    token: DelegationTokenId, further: bytes
) -> None:
    assert DelegationTokenId.from_bytes(written(token) + further) == token


@given(ids, st.data())
def test_a_truncated_one_is_refused(token: DelegationTokenId, data: st.DataObject) -> None:
    whole = written(token)
    with pytest.raises(CredentialsError):
        DelegationTokenId.from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
def test_garbage_is_read_or_refused_with_the_one_error(garbage: bytes) -> None:
    with contextlib.suppress(CredentialsError):
        DelegationTokenId.from_bytes(garbage)


def test_another_version_is_refused() -> None:
    with pytest.raises(CredentialsError, match="unknown version 7, not 0"):
        DelegationTokenId.from_bytes(b"\7" + bytes(40))

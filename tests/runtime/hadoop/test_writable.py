"""Hadoop's vlong, against examples worked out by WritableUtils' rule, and for every value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import WritableReader, encode_bytes, encode_text, encode_vlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (-112, "90"),
        (128, "8f80"),
        (-113, "8770"),
        (255, "8fff"),
        (256, "8e0100"),
        (-256, "87ff"),
        (-257, "860100"),
        (2**31 - 1, "8c7fffffff"),
        (2**63 - 1, "887fffffffffffffff"),
        (-(2**63), "807fffffffffffffff"),
    ],
)
def test_vlong_examples(value: int, encoded: str) -> None:
    assert encode_vlong(value).hex() == encoded
    assert WritableReader(bytes.fromhex(encoded)).vlong() == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_vlong_comes_back(value: int) -> None:
    reader = WritableReader(encode_vlong(value))
    assert reader.vlong() == value
    assert reader.remaining == 0


def test_a_vlong_has_64_bits() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_vlong(2**63)
    with pytest.raises(CredentialsError, match="64 bits"):
        WritableReader(b"\x88" + b"\xff" * 8).vlong()


@given(st.binary(max_size=300), st.text(max_size=100))
def test_bytes_and_text_come_back(data: bytes, text: str) -> None:
    reader = WritableReader(encode_bytes(data) + encode_text(text))
    assert (reader.bytes(), reader.text(), reader.remaining) == (data, text, 0)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(CredentialsError, match="not a valid length"):
        WritableReader(encode_vlong(-1)).bytes()


def test_text_must_be_utf8() -> None:
    with pytest.raises(CredentialsError, match="UTF-8"):
        WritableReader(encode_bytes(b"\xff")).text()

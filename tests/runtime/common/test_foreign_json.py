"""JSON that is made to take memory or time, or to raise something that nobody has declared."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common.bounds import MOST_VALUES, BoundedJsonError, read_json
from tony_provider.runtime.common.codec import CodecError, load_json

HOSTILE = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deeper than we work with": b"[" * 60 + b"]" * 60,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "wide": b"[" + b"[]," * MOST_VALUES + b"[]]",
    "digits": b"9" * 1_000_000,
    "negative digits": b"-" + b"9" * 5000,
    "exponent": b"1e999999",
    "long fraction": b"0." + b"1" * 1_000_000,
    "nan": b"NaN",
    "infinity": b"-Infinity",
    "half of a pair": b'"\\ud800"',
    "half of a pair in a key": b'{"\\uDC00": 1}',
    "half of a pair in bytes": b'"\xed\xa0\x80"',
    "twice": b'{"state": 1, "state": 2}',
    "no text": b"\xff\xfe\x00",
    "empty": b"",
    "another encoding": '{"a": 1}'.encode("utf-16"),
}


@attrs.frozen
class Record:
    """Something of ours."""

    state: str = ""
    number: float = 0.0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    with pytest.raises(BoundedJsonError) as raised:
        read_json(HOSTILE[name])
    assert len(str(raised.value)) < 300
    str(raised.value).encode()
    with pytest.raises(CodecError):
        load_json(HOSTILE[name], Record)


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(plain_json, st.booleans())
def test_whatever_utf_8_can_write_comes_back(plain: Any, ascii_only: bool) -> None:
    assert read_json(json.dumps(plain, ensure_ascii=ascii_only).encode()) == plain


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with suppress(BoundedJsonError):
        read_json(data)


def test_a_number_that_is_none_of_ours() -> None:
    with pytest.raises(CodecError, match="number"):
        load_json(b'{"number": 1' + b"0" * 400 + b"}", Record)

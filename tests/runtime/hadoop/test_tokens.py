"""Token files: what is written is read, what is malformed is refused with one type of error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.proto import security_pb2
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, Credentials, Token, delimited

tokens = st.builds(Token, st.binary(max_size=200), st.binary(max_size=40), st.text(max_size=30), st.text(max_size=30))
credentials = st.builds(
    Credentials,
    st.dictionaries(st.text(max_size=20), tokens, max_size=4),
    st.dictionaries(st.text(max_size=20), st.binary(max_size=200), max_size=4),
)


@given(credentials)
def test_what_is_written_is_read(original: Credentials) -> None:
    assert Credentials.from_bytes(original.to_bytes()) == original


@given(credentials)
def test_the_protobuf_format_is_read(original: Credentials) -> None:
    proto = security_pb2.CredentialsProto(
        tokens=[security_pb2.CredentialsKVProto(alias=a, token=t.to_proto()) for a, t in original.tokens.items()],
        secrets=[security_pb2.CredentialsKVProto(alias=n, secret=s) for n, s in original.secrets.items()],
    )
    assert Credentials.from_bytes(b"HDTS\x01" + delimited(proto.SerializeToString())) == original


@given(credentials, st.data())
def test_a_truncated_file_is_refused(original: Credentials, data: st.DataObject) -> None:
    whole = original.to_bytes()
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CredentialsError):
        Credentials.from_bytes(whole[:length])


@given(st.binary(max_size=300), st.sampled_from([b"", b"HDTS", b"HDTS\x00", b"HDTS\x00\x01", b"HDTS\x01"]))
def test_garbage_is_read_or_refused_with_the_one_error(garbage: bytes, start: bytes) -> None:
    try:
        read = Credentials.from_bytes(start + garbage)
    except CredentialsError:
        return
    assert Credentials.from_bytes(read.to_bytes()) == read


def test_a_huge_count_costs_nothing() -> None:
    with pytest.raises(CredentialsError, match="truncated"):
        Credentials.from_bytes(b"HDTS\x00\x8c\x7f\xff\xff\xff")


def test_more_after_the_end_is_refused() -> None:
    with pytest.raises(CredentialsError, match="1 unexpected bytes follow"):
        Credentials.from_bytes(Credentials().to_bytes() + b"x")


def test_a_protobuf_token_without_its_kind_is_refused() -> None:
    entry = security_pb2.CredentialsKVProto(alias="a", token=security_pb2.TokenProto(identifier=b"i", password=b"p"))
    proto = security_pb2.CredentialsProto(tokens=[entry])
    with pytest.raises(CredentialsError, match="required"):
        Credentials.from_bytes(b"HDTS\x01" + delimited(proto.SerializePartialToString()))


@given(tokens)
def test_the_url_form_comes_back(token: Token) -> None:
    assert Token.from_url_string(token.to_url_string()) == token


@given(st.text(max_size=60))
def test_a_malformed_url_form_is_refused(text: str) -> None:
    try:
        token = Token.from_url_string(text)
    except CredentialsError:
        return
    assert Token.from_url_string(token.to_url_string()) == token


@given(tokens)
def test_the_message_comes_back(token: Token) -> None:
    assert Token.from_proto(token.to_proto()) == token


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(CredentialsError, match="tokens: not a token file"):
        Credentials.read_file(path)


def test_finding_the_masters_token() -> None:
    own, other = Token(b"1", b"x", AM_RM_TOKEN), Token(b"2", b"y", "HDFS_DELEGATION_TOKEN", "127.0.0.1:8020")
    assert Credentials({"a": other, "": own}, {"s": b"1"}).application_master_token() == own
    with pytest.raises(CredentialsError, match="only HDFS_DELEGATION_TOKEN"):
        Credentials({"a": other}).application_master_token()


def test_secrets_are_not_shown() -> None:
    text = repr(Credentials({"a": Token(b"identifier!", b"password!", "kind", "service")}, {"name": b"secret!"}))
    assert "kind" in text
    assert "!" not in text

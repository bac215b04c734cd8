"""DIGEST-MD5: RFC 2831's example, its layers from both ends, and what a server may not do."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.hadoop.errors import RpcAuthenticationError, RpcError, RpcProtocolError
from tony_provider.runtime.hadoop.sasl import (
    AUTH,
    AUTH_CONF,
    AUTH_INT,
    DigestMd5Client,
    Rc4,
    SecurityLayer,
    parse_directives,
)

# RFC 2831, section 4: the IMAP example.
RFC_CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
RFC_FINAL = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"

# As a Hadoop server with every protection enabled sends it.
HADOOP_CHALLENGE = (
    b'realm="default",nonce="rb8bQMZdwc8mr6nWcq2MSHWoeRSSAQRjQWJjRyfo",qop="auth,auth-int,auth-conf",'
    b'charset=utf-8,cipher="3des,rc4,des,rc4-56,rc4-40",algorithm=md5-sess'
)


def rfc_client() -> DigestMd5Client:
    return DigestMd5Client("chris", "secret", "imap/elwood.innosoft.com", client_nonce="OA6MHXh6VqTrRk")


def test_the_rfcs_example() -> None:
    client = rfc_client()
    answer = parse_directives(client.respond(RFC_CHALLENGE))
    assert answer["response"] == ["d388dad90d4bbd760a152321f2143af7"]
    assert answer["username"] == ["chris"]
    assert answer["qop"] == ["auth"]
    client.verify(RFC_FINAL)
    assert client.layer() is None


def test_a_server_without_the_password_is_refused() -> None:
    client = rfc_client()
    client.respond(RFC_CHALLENGE)
    with pytest.raises(RpcAuthenticationError, match="did not prove"):
        client.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")


def test_a_proof_before_the_challenge_is_refused() -> None:
    with pytest.raises(RpcAuthenticationError):
        rfc_client().verify(RFC_FINAL)


@pytest.mark.parametrize(
    ("accepted", "chosen", "cipher"),
    [
        ((AUTH_CONF, AUTH_INT, AUTH), AUTH_CONF, ["rc4"]),
        ((AUTH_INT, AUTH), AUTH_INT, None),
        ((AUTH,), AUTH, None),
    ],
)
def test_the_first_accepted_protection_is_chosen(
    accepted: tuple[str, ...], chosen: str, cipher: list[str] | None
) -> None:
    answer = parse_directives(DigestMd5Client("u", "p", "/default", accepted=accepted).respond(HADOOP_CHALLENGE))
    assert answer["qop"] == [chosen]
    assert answer.get("cipher") == cipher


def test_privacy_without_a_known_cipher_is_not_taken() -> None:
    challenge = b'nonce="n",algorithm=md5-sess,qop="auth-conf",cipher="3des,des"'
    with pytest.raises(RpcAuthenticationError, match="3des"):
        DigestMd5Client("u", "p", "/default").respond(challenge)


def test_protection_is_never_weakened_below_what_is_accepted() -> None:
    with pytest.raises(RpcAuthenticationError, match="this client accepts auth-conf"):
        DigestMd5Client("u", "p", "/default", accepted=(AUTH_CONF,)).respond(RFC_CHALLENGE)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"algorithm=md5-sess",
        b'nonce="a",nonce="b",algorithm=md5-sess',
        b'nonce="a,algorithm=md5-sess',
        b'nonce="a",algorithm=md5-sess,maxbuf=0',
        b'nonce="a",algorithm=md5-sess,maxbuf=x',
        b'nonce="\xff",algorithm=md5-sess',
    ],
)
def test_malformed_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(RpcProtocolError):
        DigestMd5Client("u", "p", "/default").respond(challenge)


@given(st.binary(max_size=200))
def test_any_challenge_is_answered_or_refused(challenge: bytes) -> None:
    with contextlib.suppress(RpcError):
        DigestMd5Client("u", "p", "/default").respond(b'algorithm=md5-sess,nonce="n",' + challenge)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_quoting_comes_back(name: str) -> None:
    answer = DigestMd5Client(name, "p", "/default").respond(RFC_CHALLENGE)
    assert parse_directives(answer)["username"] == [name]


def layer(qop: str) -> SecurityLayer:
    """A layer of fixed keys; every call gives the same one, at its first message."""
    client = DigestMd5Client("u", "p", "/default", accepted=(qop,), client_nonce="c")
    client.respond(HADOOP_CHALLENGE)
    made = client.layer()
    assert made is not None
    return made


def server_layer(qop: str) -> SecurityLayer:
    """The other end of ``layer``: its two directions exchanged."""
    made = layer(qop)
    made._outgoing, made._incoming = made._incoming, made._outgoing  # type: ignore[attr-defined]
    if qop == AUTH_CONF:
        made._encrypt, made._decrypt = made._decrypt, made._encrypt  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("qop", [AUTH_INT, AUTH_CONF])
@given(messages=st.lists(st.binary(max_size=200), max_size=5))
def test_what_is_wrapped_is_unwrapped(qop: str, messages: list[bytes]) -> None:
    client, server = layer(qop), server_layer(qop)
    for message in messages:
        assert server.unwrap(client.wrap(message)) == message
        assert client.unwrap(server.wrap(message)) == message


@pytest.mark.parametrize("qop", [AUTH_INT, AUTH_CONF])
@given(message=st.binary(max_size=50), data=st.data())
def test_a_changed_message_is_refused(qop: str, message: bytes, data: st.DataObject) -> None:
    wrapped = bytearray(layer(qop).wrap(message))
    position = data.draw(st.integers(0, len(wrapped) - 1))
    wrapped[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RpcProtocolError, match="changed"):
        server_layer(qop).unwrap(bytes(wrapped))


@pytest.mark.parametrize("qop", [AUTH_INT, AUTH_CONF])
@given(wrapped=st.binary(max_size=60))
def test_garbage_is_refused(qop: str, wrapped: bytes) -> None:
    with pytest.raises(RpcProtocolError):
        layer(qop).unwrap(wrapped)


@pytest.mark.parametrize("qop", [AUTH_INT, AUTH_CONF])
def test_a_repeated_message_is_refused(qop: str) -> None:
    client, server = layer(qop), server_layer(qop)
    wrapped = client.wrap(b"launch")
    server.unwrap(wrapped)
    with pytest.raises(RpcProtocolError, match="repeated"):
        server.unwrap(wrapped)


def test_privacy_hides_the_message() -> None:
    assert b"a message" not in layer(AUTH_CONF).wrap(b"a message")


@pytest.mark.parametrize(
    ("key", "clear", "encrypted"),
    [(b"Key", b"Plaintext", "bbf316e8d940af0ad3"), (b"Wiki", b"pedia", "1021bf0420")],
)
def test_rc4s_published_vectors(key: bytes, clear: bytes, encrypted: str) -> None:
    assert Rc4(key).apply(clear).hex() == encrypted


def test_rc4s_stream_goes_on() -> None:
    parts = Rc4(b"Key")
    assert parts.apply(b"Plain") + parts.apply(b"") + parts.apply(b"text") == bytes.fromhex("bbf316e8d940af0ad3")

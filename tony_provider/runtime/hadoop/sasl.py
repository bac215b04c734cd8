"""SASL DIGEST-MD5 for Hadoop RPC: authentication by a token, integrity and privacy layers, and the RC4 cipher.

RC4 is weak by today's standards. It is used only if a Hadoop cluster requires ``hadoop.rpc.protection=privacy`` over
SASL, which has no better cipher. Python's standard library lacks RC4.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Optional, Protocol

import attrs

from tony_provider.runtime.hadoop.errors import RpcAuthenticationError, RpcProtocolError
from tony_provider.runtime.hadoop.proto.rpc_pb2 import RpcSaslProto
from tony_provider.runtime.hadoop.tokens import Token


class Rc4:
    """RC4 cipher for one direction of one connection. Each call continues the key stream of the previous call."""

    def __init__(self, key: bytes) -> None:
        state = list(range(256))
        j = 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) & 0xFF
            state[i], state[j] = state[j], state[i]
        self._state = state
        self._i = 0
        self._j = 0

    def apply(self, data: bytes) -> bytes:
        """Encrypt or decrypt the data; both are the same operation."""
        state, i, j = self._state, self._i, self._j
        stream = bytearray(len(data))
        for position in range(len(data)):
            i = (i + 1) & 0xFF
            a = state[i]
            j = (j + a) & 0xFF
            b = state[j]
            state[i] = b
            state[j] = a
            stream[position] = state[(a + b) & 0xFF]
        self._i, self._j = i, j
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(data), "big")


AUTH, AUTH_INT, AUTH_CONF = "auth", "auth-int", "auth-conf"
STRONGEST_FIRST = (AUTH_CONF, AUTH_INT, AUTH)

# Accepted ciphers, with the number of bytes of H(A1) in the key. Java servers also offer rc4-56 and rc4-40, which are
# easy to break. If the client accepted them, an attacker could enforce one of them by removing rc4 from the server's
# challenge, which is unprotected.
_CIPHER_KEY_BYTES = {"rc4": 16}

_DIRECTIVE = re.compile(r'\s*([a-zA-Z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]*))\s*(?:,|$)', re.DOTALL)
_MAX_BUFFER = 65536  # size limit of received messages, which the client announces; the default of RFC 2831
_HASH_OF_NO_BODY = ":00000000000000000000000000000000"
_FIRST_USE = "00000001"  # nonce count, constant because each nonce is used once

_MAC_BYTES = 10
_MESSAGE_TYPE = b"\x00\x01"
_SEQUENCE_BYTES = 4


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _mac(key: bytes, sequence: bytes, message: bytes) -> bytes:
    # Computes HMAC by hand (RFC 2104), because hmac.new rejects MD5 in FIPS mode. Keys are shorter than a block.
    block = key.ljust(64, b"\0")
    inner = _md5(bytes(byte ^ 0x36 for byte in block) + sequence + message)
    return _md5(bytes(byte ^ 0x5C for byte in block) + inner)[:_MAC_BYTES]


class SecurityLayer(Protocol):
    """Protection of messages after authentication. Wrap messages in sending order, unwrap in receiving order."""

    max_message_bytes: int  # size limit of the argument of ``wrap``

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the content of a wrapped message. Raises RpcProtocolError if bytes were changed, reordered or cut."""
        ...


class _MessageCheck:
    """Sequence number and message authentication code (MAC) for the messages of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next = 0

    def seal(self, message: bytes) -> tuple[bytes, bytes]:
        """Return the MAC of ``message``, and the trailer with its sequence number."""
        sequence = (self._next & 0xFFFFFFFF).to_bytes(_SEQUENCE_BYTES, "big")
        self._next += 1
        return _mac(self._key, sequence, message), sequence

    def check(self, message: bytes, code: bytes, trailer: bytes) -> None:
        expected, sequence = self.seal(message)
        if trailer != _MESSAGE_TYPE + sequence or not hmac.compare_digest(code, expected):
            raise RpcProtocolError("a wrapped message was changed, repeated or lost in transit")


_TRAILER_BYTES = len(_MESSAGE_TYPE) + _SEQUENCE_BYTES


@attrs.define
class _Integrity:
    max_message_bytes: int
    _outgoing: _MessageCheck
    _incoming: _MessageCheck

    def wrap(self, message: bytes) -> bytes:
        code, sequence = self._outgoing.seal(message)
        return message + code + _MESSAGE_TYPE + sequence

    def unwrap(self, wrapped: bytes) -> bytes:
        end = len(wrapped) - _TRAILER_BYTES - _MAC_BYTES
        if end < 0:
            raise RpcProtocolError(f"a wrapped message has only {len(wrapped)} bytes")
        message, code = wrapped[:end], wrapped[end : end + _MAC_BYTES]
        self._incoming.check(message, code, wrapped[-_TRAILER_BYTES:])
        return message


@attrs.define
class _Privacy:
    max_message_bytes: int
    _outgoing: _MessageCheck
    _incoming: _MessageCheck
    _encrypt: Rc4
    _decrypt: Rc4

    def wrap(self, message: bytes) -> bytes:
        code, sequence = self._outgoing.seal(message)
        return self._encrypt.apply(message + code) + _MESSAGE_TYPE + sequence

    def unwrap(self, wrapped: bytes) -> bytes:
        if len(wrapped) < _TRAILER_BYTES + _MAC_BYTES:
            raise RpcProtocolError(f"a wrapped message has only {len(wrapped)} bytes")
        clear = self._decrypt.apply(wrapped[:-_TRAILER_BYTES])
        message, code = clear[:-_MAC_BYTES], clear[-_MAC_BYTES:]
        self._incoming.check(message, code, wrapped[-_TRAILER_BYTES:])
        return message


def parse_directives(challenge: bytes) -> dict[str, list[str]]:
    """Parse the ``name=value`` pairs of a challenge, and return the list of values by name.

    Values may be quoted, and names may repeat. Raises RpcProtocolError.
    """
    try:
        text = challenge.decode()
    except UnicodeDecodeError as error:
        raise RpcProtocolError("the DIGEST-MD5 challenge is not UTF-8") from error
    directives: dict[str, list[str]] = {}
    position = 0
    while position < len(text):
        matched = _DIRECTIVE.match(text, position)
        if matched is None:
            raise RpcProtocolError(f"malformed DIGEST-MD5 challenge at character {position}")
        name, quoted, plain = matched.groups()
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else plain
        directives.setdefault(name.lower(), []).append(value)
        position = matched.end()
    return directives


def _quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class DigestMd5Client:
    """Client's side of one DIGEST-MD5 exchange.

    Call ``respond`` with the server's challenge, ``verify`` with the server's last message, then ``layer``.
    ``accepted`` lists acceptable SASL qualities of protection, the preferred one first. The client uses the first one
    that the server offers.
    """

    def __init__(
        self,
        username: str,
        password: str,
        digest_uri: str,
        *,
        accepted: tuple[str, ...] = STRONGEST_FIRST,
        client_nonce: Optional[str] = None,
    ) -> None:
        self._username = username
        self._password = password
        self._digest_uri = digest_uri
        self._accepted = accepted
        self._client_nonce = client_nonce or secrets.token_urlsafe(24)
        self._expected_rspauth: Optional[str] = None
        self._session_hash = b""
        self._cipher = ""
        self._server_max_buffer = _MAX_BUFFER
        self.qop = ""

    def respond(self, challenge: bytes) -> bytes:
        """Return the response to the server's challenge.

        Raises RpcProtocolError for a malformed challenge, RpcAuthenticationError if no offer is acceptable.
        """
        offered = parse_directives(challenge)
        nonce = _single(offered, "nonce")
        if _single(offered, "algorithm") != "md5-sess":
            raise RpcAuthenticationError("the server's DIGEST-MD5 challenge does not offer md5-sess")
        realm = offered.get("realm", [""])[0]
        self._choose_protection(offered)
        self._read_max_buffer(offered)

        secret = _md5(f"{self._username}:{realm}:{self._password}".encode())
        self._session_hash = _md5(secret + f":{nonce}:{self._client_nonce}".encode())
        body = "" if self.qop == AUTH else _HASH_OF_NO_BODY
        response = self._digest(nonce, f"AUTHENTICATE:{self._digest_uri}{body}")
        self._expected_rspauth = self._digest(nonce, f":{self._digest_uri}{body}")

        answer = [
            "charset=utf-8",
            f"username={_quote(self._username)}",
            f"realm={_quote(realm)}",
            f"nonce={_quote(nonce)}",
            f"nc={_FIRST_USE}",
            f"cnonce={_quote(self._client_nonce)}",
            f"digest-uri={_quote(self._digest_uri)}",
            f"maxbuf={_MAX_BUFFER}",
            f"response={response}",
            f"qop={self.qop}",
        ]
        if self._cipher:
            answer.append(f"cipher={_quote(self._cipher)}")
        return ",".join(answer).encode()

    def verify(self, final: bytes) -> None:
        """Check the server's proof that it knows the password. Raises RpcProtocolError, RpcAuthenticationError."""
        proof = _single(parse_directives(final), "rspauth")
        if self._expected_rspauth is None or not hmac.compare_digest(proof.encode(), self._expected_rspauth.encode()):
            raise RpcAuthenticationError("the server did not prove that it knows the token")

    def layer(self) -> Optional[SecurityLayer]:
        """Return the security layer for all later messages, or None if they are unprotected."""
        if self.qop == AUTH:
            return None
        outgoing = _MessageCheck(self._key("Digest session key to client-to-server signing key magic constant"))
        incoming = _MessageCheck(self._key("Digest session key to server-to-client signing key magic constant"))
        max_message = self._server_max_buffer - _TRAILER_BYTES - _MAC_BYTES
        if self.qop == AUTH_INT:
            return _Integrity(max_message, outgoing, incoming)
        size = _CIPHER_KEY_BYTES[self._cipher]
        encrypt = Rc4(self._key("Digest H(A1) to client-to-server sealing key magic constant", size))
        decrypt = Rc4(self._key("Digest H(A1) to server-to-client sealing key magic constant", size))
        return _Privacy(max_message, outgoing, incoming, encrypt, decrypt)

    def _digest(self, nonce: str, request: str) -> str:
        key = self._session_hash.hex()
        data = f"{nonce}:{_FIRST_USE}:{self._client_nonce}:{self.qop}:{_md5(request.encode()).hex()}"
        return _md5(f"{key}:{data}".encode()).hex()

    def _key(self, constant: str, size: int = 16) -> bytes:
        return _md5(self._session_hash[:size] + constant.encode())

    def _choose_protection(self, offered: dict[str, list[str]]) -> None:
        qualities = _items(offered, "qop") or [AUTH]
        ciphers = _items(offered, "cipher")
        cipher = next((known for known in _CIPHER_KEY_BYTES if known in ciphers), "")
        for quality in self._accepted:
            if quality in qualities and (quality != AUTH_CONF or cipher):
                self.qop = quality
                self._cipher = cipher if quality == AUTH_CONF else ""
                return
        raise RpcAuthenticationError(
            f"the server offers protection {', '.join(qualities)} with ciphers {', '.join(ciphers) or 'none'}; "
            f"this client accepts {', '.join(self._accepted)} with ciphers {', '.join(_CIPHER_KEY_BYTES)}: its "
            "hadoop.rpc.protection differs from the ResourceManager's, or the offer was changed in transit"
        )

    def _read_max_buffer(self, offered: dict[str, list[str]]) -> None:
        text = offered.get("maxbuf", [str(_MAX_BUFFER)])[0]
        if not (text.isascii() and text.isdigit()) or not 256 <= int(text) <= 0xFFFFFF:
            raise RpcProtocolError(f"the DIGEST-MD5 challenge has the invalid maxbuf {text[:20]!r}")
        self._server_max_buffer = int(text)


def _single(directives: dict[str, list[str]], name: str) -> str:
    values = directives.get(name, [])
    if len(values) != 1:
        raise RpcProtocolError(f"the DIGEST-MD5 message has {len(values)} values of {name}")
    return values[0]


def _items(directives: dict[str, list[str]], name: str) -> list[str]:
    return [item.strip().lower() for value in directives.get(name, []) for item in value.split(",") if item.strip()]


_QUALITIES = {"authentication": AUTH, "integrity": AUTH_INT, "privacy": AUTH_CONF}


def accepted_protection(listed: str) -> tuple[str, ...]:
    """Return the SASL qualities to accept for a value of ``hadoop.rpc.protection``, the strongest first.

    These are the weakest listed quality and all stronger ones. Returns all qualities if no listed value is valid,
    because the cluster's requirement is then unknown.
    """
    words = [word.lower() for word in re.split(r"[,\s]+", listed) if word]
    known = [STRONGEST_FIRST.index(_QUALITIES[word]) for word in words if word in _QUALITIES]
    return STRONGEST_FIRST[: max(known) + 1] if known else STRONGEST_FIRST


_METHOD, _MECHANISM = "TOKEN", "DIGEST-MD5"


def negotiate_message() -> RpcSaslProto:
    """Return the client's first message."""
    return RpcSaslProto(state=RpcSaslProto.NEGOTIATE)


class TokenAuthentication:
    """Client's side of one authentication by a token in Hadoop RPC. The class does no I/O.

    Pass each message of the server to ``step`` until ``step`` returns None.
    """

    def __init__(self, token: Token, *, accepted: tuple[str, ...] = STRONGEST_FIRST) -> None:
        self._token = token
        self._accepted = accepted
        self._digest: Optional[DigestMd5Client] = None
        self._responded = False

    def step(self, message: RpcSaslProto) -> Optional[RpcSaslProto]:
        """Return the answer to a message of the server, or None after success.

        Raises RpcProtocolError, RpcAuthenticationError.
        """
        if message.state == RpcSaslProto.NEGOTIATE and self._digest is None:
            return self._initiate(message)
        if message.state == RpcSaslProto.CHALLENGE and self._digest is not None and not self._responded:
            return RpcSaslProto(state=RpcSaslProto.RESPONSE, token=self._respond(self._digest, message.token))
        if message.state == RpcSaslProto.SUCCESS and self._digest is not None and self._responded:
            self._digest.verify(message.token)
            return None
        if message.state == RpcSaslProto.SUCCESS:
            raise RpcAuthenticationError(
                "the server accepted the connection without authentication, so it may not be the server of the token"
            )
        raise RpcProtocolError(f"unexpected SASL message {RpcSaslProto.SaslState.Name(message.state)}")

    def layer(self) -> Optional[SecurityLayer]:
        """Return the security layer for messages after the authentication, or None if they are unprotected."""
        if self._digest is None:
            raise RuntimeError("the exchange has not happened yet")
        return self._digest.layer()

    def _initiate(self, offer: RpcSaslProto) -> RpcSaslProto:
        for auth in offer.auths:
            if (auth.method, auth.mechanism) == (_METHOD, _MECHANISM):
                break
        else:
            methods = ", ".join(f"{auth.method}/{auth.mechanism}" for auth in offer.auths)
            raise RpcAuthenticationError(f"the server does not accept tokens, only {methods or 'nothing'}")
        self._digest = DigestMd5Client(
            base64.b64encode(self._token.identifier).decode(),
            base64.b64encode(self._token.password).decode(),
            f"{auth.protocol}/{auth.serverId}",
            accepted=self._accepted,
        )
        chosen = RpcSaslProto.SaslAuth(
            method=auth.method, mechanism=auth.mechanism, protocol=auth.protocol, serverId=auth.serverId
        )
        answer = RpcSaslProto(state=RpcSaslProto.INITIATE, auths=[chosen])
        if auth.HasField("challenge"):
            answer.token = self._respond(self._digest, auth.challenge)
        return answer

    def _respond(self, digest: DigestMd5Client, challenge: bytes) -> bytes:
        self._responded = True
        return digest.respond(challenge)

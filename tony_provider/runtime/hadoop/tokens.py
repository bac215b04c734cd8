"""Hadoop tokens and credentials, their Writable encoding (vlong, vint, byte arrays, Text), and frames of RPC messages.

The encoding of vlong and vint is that of org.apache.hadoop.io.WritableUtils. A value in -112..127 is one byte. For all
other values, the first byte contains sign and length, and big-endian bytes follow:

- -113..-120: 1 to 8 bytes of a positive value.
- -121..-128: 1 to 8 bytes of the one's complement of a negative value.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TypeVar, Union

import attrs
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tony_provider.runtime.common.binary import EndlessNumber, encode_varint, read_varint
from tony_provider.runtime.hadoop.errors import CredentialsError, RpcProtocolError
from tony_provider.runtime.hadoop.proto import security_pb2

_INT_MAX = 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def encode_vlong(value: int) -> bytes:
    """Return the vlong encoding of a number. Raises ValueError if it does not fit in 64 bits."""
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise ValueError(f"{value} does not fit in a vlong")
    if -112 <= value <= 127:
        return value.to_bytes(1, "big", signed=True)
    magnitude = value if value >= 0 else ~value
    size = (magnitude.bit_length() + 7) // 8
    marker = (-112 if value >= 0 else -120) - size
    return marker.to_bytes(1, "big", signed=True) + magnitude.to_bytes(size, "big")


def encode_bytes(data: bytes) -> bytes:
    """Return the encoding of a byte array: its length as a vint, then the bytes."""
    return encode_vlong(len(data)) + data


def encode_text(text: str) -> bytes:
    """Return the encoding of a Text: UTF-8, as a byte array."""
    return encode_bytes(text.encode())


class WritableReader:
    """Sequential reader of Writable values.

    Methods raise CredentialsError if the bytes end early or are not a value of the method's type.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.remaining:
            raise CredentialsError(f"truncated: {count} bytes expected at {self._position}, {self.remaining} are left")
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def vlong(self) -> int:
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -112:
            return first
        if first >= -120:
            value = int.from_bytes(self.take(-112 - first), "big")
        else:
            value = ~int.from_bytes(self.take(-120 - first), "big")
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise CredentialsError(f"a vlong before byte {self._position} does not fit in 64 bits")
        return value

    def count(self) -> int:
        """Read a vint that is a number of bytes or items. Raises CredentialsError for a negative number."""
        value = self.vlong()
        if not 0 <= value <= _INT_MAX:
            raise CredentialsError(f"{value} before byte {self._position} is not a valid length")
        return value

    def bytes(self) -> bytes:
        return self.take(self.count())

    def text(self) -> str:
        data = self.bytes()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CredentialsError(f"a text before byte {self._position} is not UTF-8") from error


M = TypeVar("M", bound=Message)

LENGTH_BYTES = 4
# the same limit as in Hadoop's client (ipc.maximum.response.length)
MAX_FRAME_BYTES = 128 * 1024 * 1024


def delimited(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def split_delimited(data: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first length-prefixed block in ``data``, and the bytes after it. Raises ValueError."""
    try:
        length, start = read_varint(data, 0)
    except (IndexError, EndlessNumber):
        raise ValueError("the length of a message is incomplete") from None
    if length > len(data) - start:
        raise ValueError(f"a message of {length} bytes is truncated to {len(data) - start}")
    return data[start : start + length], data[start + length :]


def encode_frame(*messages: Message) -> bytes:
    """Return the frame that contains these messages."""
    body = b"".join(delimited(message.SerializeToString()) for message in messages)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_message(message_type: type[M], data: bytes) -> tuple[M, bytes]:
    """Parse the first message in ``data``; return the message and the bytes after it. Raises RpcProtocolError."""
    message = message_type()
    try:
        encoded, rest = split_delimited(data)
        parse_into(message, encoded)
    except (DecodeError, ValueError) as error:
        raise RpcProtocolError(f"malformed {message_type.DESCRIPTOR.name}: {error}") from error
    return message, rest


def parse_into(message: Message, encoded: bytes) -> None:
    """Fill ``message`` from its encoding.

    Raises DecodeError. Unlike protobuf's parser, this function also rejects missing required fields, and texts that
    are not UTF-8.
    """
    message.ParseFromString(encoded)
    if not message.IsInitialized():
        raise DecodeError("required fields are missing")
    _check_text(message)


def _check_text(message: Message) -> None:
    # In proto2, the parser returns texts that are not UTF-8 as bytes.
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in values:
                _check_text(part)
        elif field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(text, str) for text in values):
            raise DecodeError(f"{field.name} is not UTF-8")


def last_message(message_type: type[M], data: bytes) -> M:
    """Parse ``data``, which must be exactly one message. Raises RpcProtocolError."""
    message, rest = take_message(message_type, data)
    if rest:
        raise RpcProtocolError(f"{len(rest)} unexpected bytes follow {message_type.DESCRIPTOR.name}")
    return message


class FrameBuffer:
    """Buffer that collects received bytes and returns complete frames, without their length prefixes."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes. Raises RpcProtocolError if a frame exceeds the limit."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if length > self._max_frame_bytes:
                start = bytes(self._buffer[:16])
                raise RpcProtocolError(
                    f"received a frame of {length} bytes, more than {self._max_frame_bytes}: "
                    f"probably not a Hadoop RPC server, its answer starts with {start!r}"
                )
            end = LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
        return frames


_VERSION = 0


@attrs.frozen
class DelegationTokenId:
    """Identifier of a delegation token. Times are epoch milliseconds by the NameNode's clock."""

    owner: str  # user or principal that the token authenticates, in the form that HDFS received
    renewer: str
    real_user: str  # proxy user that requested the token for the owner; empty if the owner requested it
    issued_ms: int
    latest_ms: int  # latest possible expiry; the actual expiry, which each renewal returns, may be earlier
    number: int  # sequence number that the NameNodes of an HDFS assign

    @classmethod
    def from_bytes(cls, identifier: bytes) -> DelegationTokenId:
        """Parse a token's identifier. Raises CredentialsError."""
        reader = WritableReader(identifier)
        version = reader.take(1)[0]
        if version != _VERSION:
            raise CredentialsError(f"a delegation token has the unknown version {version}, not {_VERSION}")
        return cls(reader.text(), reader.text(), reader.text(), reader.vlong(), reader.vlong(), reader.vlong())


AM_RM_TOKEN = "YARN_AM_RM_TOKEN"
NM_TOKEN = "NMToken"
HDFS_TOKEN = "HDFS_DELEGATION_TOKEN"
WEBHDFS_TOKEN = "WEBHDFS delegation"
KEY_SERVER_TOKEN = "kms-dt"
HIVE_TOKEN = "HIVE_DELEGATION_TOKEN"
REGISTRY_TOKEN = "DOCKER_CLIENT_CREDENTIAL_TOKEN"

_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1


@attrs.frozen
class Token:
    """Hadoop security token for one service.

    Only the service can interpret the identifier. The password is a secret.
    """

    identifier: bytes = attrs.field(repr=False)
    password: bytes = attrs.field(repr=False)
    kind: str
    service: str = ""  # service that accepts the token, mostly ip:port; may be empty in an application master's token

    @classmethod
    def from_proto(cls, proto: security_pb2.TokenProto) -> Token:
        return cls(proto.identifier, proto.password, proto.kind, proto.service)

    def to_proto(self) -> security_pb2.TokenProto:
        return security_pb2.TokenProto(
            identifier=self.identifier, password=self.password, kind=self.kind, service=self.service
        )

    @classmethod
    def of_registry(cls, registry: str, auth: str, application_id: str) -> Token:
        """Return a token with which NodeManagers log in to an image registry.

        ``auth`` is the value of the key ``auth`` in the Docker client's ``config.json``. The token's identifier is
        YARN's DockerCredentialTokenIdentifierProto, a message with two text fields.
        """
        identifier = b"".join(
            tag + delimited(text.encode()) for tag, text in ((b"\x0a", registry), (b"\x12", application_id))
        )
        return cls(identifier, auth.encode(), REGISTRY_TOKEN, registry)

    @classmethod
    def from_url_string(cls, text: str) -> Token:
        """Parse a token that ``to_url_string`` wrote. Raises CredentialsError."""
        try:
            data = base64.b64decode(text.strip() + "=" * (-len(text.strip()) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise CredentialsError("not a token's URL-safe form: not URL-safe base64") from error
        reader = WritableReader(data)
        token = cls._read(reader)
        _expect_end(reader, "the token")
        return token

    def to_url_string(self) -> str:
        """Return the text form in which clients send a token to the REST APIs of YARN and WebHDFS."""
        return base64.urlsafe_b64encode(self._written()).rstrip(b"=").decode()

    def _written(self) -> bytes:
        return (
            encode_bytes(self.identifier)
            + encode_bytes(self.password)
            + encode_text(self.kind)
            + encode_text(self.service)
        )

    @classmethod
    def _read(cls, reader: WritableReader) -> Token:
        return cls(reader.bytes(), reader.bytes(), reader.text(), reader.text())


@attrs.define
class Credentials:
    """Content of a token file: tokens by alias, secrets by name."""

    tokens: dict[str, Token] = attrs.field(factory=dict)
    secrets: dict[str, bytes] = attrs.field(factory=dict, repr=False)

    def application_master_token(self) -> Token:
        """Return the application master's token for the ResourceManager. Raises CredentialsError."""
        found = [token for token in self.tokens.values() if token.kind == AM_RM_TOKEN]
        if not found:
            kinds = sorted({token.kind for token in self.tokens.values()})
            raise CredentialsError(f"no {AM_RM_TOKEN} token, only {', '.join(kinds) or 'none at all'}")
        return found[0]

    @classmethod
    def from_bytes(cls, data: bytes) -> Credentials:
        """Parse the bytes of a token file in format 0 (Writable) or 1 (protobuf). Raises CredentialsError."""
        reader = WritableReader(data)
        if reader.take(min(len(_MAGIC), reader.remaining)) != _MAGIC:
            raise CredentialsError("not a token file: it does not begin with HDTS")
        file_format = reader.take(1)[0]
        if file_format == _WRITABLE:
            return cls._read_writable(reader)
        if file_format == _PROTOBUF:
            return cls._read_protobuf(reader)
        raise CredentialsError(f"token file format {file_format} is not supported (only 0 and 1)")

    def to_bytes(self) -> bytes:
        """Return the bytes of a token file in format 0, which every Hadoop version reads.

        ContainerLaunchContextProto.tokens has the same format.
        """
        parts = [_MAGIC, bytes([_WRITABLE]), encode_vlong(len(self.tokens))]
        for alias, token in self.tokens.items():
            parts += [encode_text(alias), token._written()]
        parts.append(encode_vlong(len(self.secrets)))
        for name, secret in self.secrets.items():
            parts += [encode_text(name), encode_bytes(secret)]
        return b"".join(parts)

    @classmethod
    def read_file(cls, path: Union[str, os.PathLike[str]]) -> Credentials:
        """Read the credentials in a local token file. Blocks briefly.

        Raises CredentialsError if the file is malformed, OSError if it cannot be read.
        """
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except CredentialsError as error:
            raise CredentialsError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def _read_writable(cls, reader: WritableReader) -> Credentials:
        credentials = cls()
        for _ in range(reader.count()):
            alias = reader.text()
            credentials.tokens[alias] = Token._read(reader)
        for _ in range(reader.count()):
            name = reader.text()
            credentials.secrets[name] = reader.bytes()
        _expect_end(reader, "the last secret")
        return credentials

    @classmethod
    def _read_protobuf(cls, reader: WritableReader) -> Credentials:
        proto = security_pb2.CredentialsProto()
        try:
            message, rest = split_delimited(reader.take(reader.remaining))
            parse_into(proto, message)
        except (DecodeError, ValueError) as error:
            raise CredentialsError(f"malformed token file of format 1: {error}") from error
        if rest:
            raise CredentialsError(f"{len(rest)} unexpected bytes follow the credentials")
        return cls(
            {entry.alias: Token.from_proto(entry.token) for entry in proto.tokens},
            {entry.alias: entry.secret for entry in proto.secrets},
        )


def _expect_end(reader: WritableReader, what: str) -> None:
    if reader.remaining:
        raise CredentialsError(f"{reader.remaining} unexpected bytes follow {what}")

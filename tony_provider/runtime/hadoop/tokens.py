"""Tokens and secrets, and the files that carry them (``$HADOOP_TOKEN_FILE_LOCATION``).

Formats: org.apache.hadoop.security.Credentials (``HDTS``, then a format byte: 0 for Writable, 1 for protobuf, which
Hadoop 3 also reads) and org.apache.hadoop.security.token.Token (the URL-safe form of encodeToUrlString).
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Union

import attrs
from google.protobuf.message import DecodeError

from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.frames import delimited, parse_into, split_delimited
from tony_provider.runtime.hadoop.proto import security_pb2
from tony_provider.runtime.hadoop.writable import WritableReader, encode_bytes, encode_text, encode_vlong

AM_RM_TOKEN = "YARN_AM_RM_TOKEN"
NM_TOKEN = "NMToken"
HDFS_TOKEN = "HDFS_DELEGATION_TOKEN"
WEBHDFS_TOKEN = "WEBHDFS delegation"
KEY_SERVER_TOKEN = "kms-dt"
REGISTRY_TOKEN = "DOCKER_CLIENT_CREDENTIAL_TOKEN"

_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1


@attrs.frozen
class Token:
    """A token: the proof of who one is, for one service.

    Identifier and password are opaque; the password is a secret.
    """

    identifier: bytes = attrs.field(repr=False)
    password: bytes = attrs.field(repr=False)
    kind: str
    service: str = ""  # whom it is for, mostly ip:port; empty for the application master's own

    @classmethod
    def from_proto(cls, proto: security_pb2.TokenProto) -> Token:
        return cls(proto.identifier, proto.password, proto.kind, proto.service)

    def to_proto(self) -> security_pb2.TokenProto:
        return security_pb2.TokenProto(
            identifier=self.identifier, password=self.password, kind=self.kind, service=self.service
        )

    @classmethod
    def of_registry(cls, registry: str, auth: str, application_id: str) -> Token:
        """What NodeManagers take for a registry of images: ``auth`` as in a config.json of Docker's client.

        Its identifier is YARN's DockerCredentialTokenIdentifierProto: two texts.
        """
        identifier = b"".join(
            tag + delimited(text.encode()) for tag, text in ((b"\x0a", registry), (b"\x12", application_id))
        )
        return cls(identifier, auth.encode(), REGISTRY_TOKEN, registry)

    @classmethod
    def from_url_string(cls, text: str) -> Token:
        """The token that ``to_url_string`` has written. Raises CredentialsError."""
        try:
            data = base64.b64decode(text.strip() + "=" * (-len(text.strip()) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise CredentialsError("not a token's URL-safe form: not URL-safe base64") from error
        reader = WritableReader(data)
        token = cls._read(reader)
        _expect_end(reader, "the token")
        return token

    def to_url_string(self) -> str:
        """The text form that YARN's and WebHDFS's REST calls take."""
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
    """The content of a token file: tokens by alias, secrets by name."""

    tokens: dict[str, Token] = attrs.field(factory=dict)
    secrets: dict[str, bytes] = attrs.field(factory=dict, repr=False)

    def of_kind(self, kind: str) -> list[Token]:
        return [token for token in self.tokens.values() if token.kind == kind]

    def application_master_token(self) -> Token:
        """The token that YARN gave an application master for the ResourceManager. Raises CredentialsError."""
        found = self.of_kind(AM_RM_TOKEN)
        if not found:
            kinds = sorted({token.kind for token in self.tokens.values()})
            raise CredentialsError(f"no {AM_RM_TOKEN} token, only {', '.join(kinds) or 'none at all'}")
        return found[0]

    @classmethod
    def from_bytes(cls, data: bytes) -> Credentials:
        """The credentials in a token file's bytes, of either format. Raises CredentialsError."""
        reader = WritableReader(data)
        if reader.take(min(len(_MAGIC), reader.remaining)) != _MAGIC:
            raise CredentialsError("not a token file: it does not begin with HDTS")
        file_format = reader.take(1)[0]
        if file_format == _WRITABLE:
            return cls._read_writable(reader)
        if file_format == _PROTOBUF:
            return cls._read_protobuf(reader)
        raise CredentialsError(f"token file format {file_format} is not known (0 and 1 are)")

    def to_bytes(self) -> bytes:
        """The bytes of a token file, in format 0, which every Hadoop reads.

        ContainerLaunchContextProto.tokens takes them, too.
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
        """The credentials in a token file. Blocks, for a small local file.

        Raises CredentialsError when it is malformed, OSError when it cannot be read.
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
            raise CredentialsError(f"{len(rest)} bytes follow the credentials")
        return cls(
            {entry.alias: Token.from_proto(entry.token) for entry in proto.tokens},
            {entry.alias: entry.secret for entry in proto.secrets},
        )


def _expect_end(reader: WritableReader, what: str) -> None:
    if reader.remaining:
        raise CredentialsError(f"{reader.remaining} bytes follow {what}")

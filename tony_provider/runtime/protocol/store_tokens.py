"""Delegation tokens of an application for its store and other servers, and their replacement by newer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Protocol

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, HIVE_TOKEN, Credentials, DelegationTokenId, Token
from tony_provider.runtime.storage import StorageAuthError, StorageError

KEY_SERVER_PREFIX = "kms://"  # prefix of the name of a key server's token
METASTORE_PREFIX = "thrift://"  # prefix of the name of a Hive metastore's token
_METASTORE_ALIAS = "hive.server2.delegation.token"  # as in Spark; Hive's clients find the token by its kind
_METASTORE_LIFE_MS = 24 * 3600 * 1000  # Hive's default renew interval; tokens that are not renewed then expire


@attrs.frozen
class OtherToken:
    """Delegation token of a server other than the store, with the end of its validity."""

    WRITER_MAY_BE_NEWER = True

    name: str  # the name of another HDFS in URIs, or the URI of a key server (kms://…) or of a metastore (thrift://…)
    text: str = attrs.field(repr=False)  # URL-safe, kind "WEBHDFS delegation", "kms-dt" or "HIVE_DELEGATION_TOKEN"
    until_ms: int  # end of its validity in epoch milliseconds, by its server's clock

    @property
    def id(self) -> DelegationTokenId:
        """Parse the token's identifier. Raises CredentialsError."""
        return _id(self.text)


@attrs.frozen
class StoreToken:
    """Delegation token of the store, with the end of its validity, and the tokens of other servers."""

    WRITER_MAY_BE_NEWER = True  # an older application may receive a newer writer's token; see ``codec``

    text: str = attrs.field(repr=False)  # URL-safe, kind "WEBHDFS delegation"
    until_ms: int  # end of its validity in epoch milliseconds, by the NameNode's clock
    others: list[OtherToken] = attrs.field(factory=list)

    @property
    def id(self) -> DelegationTokenId:
        """Parse the identifier of the store's token. Raises CredentialsError."""
        return _id(self.text)


def store_token(credentials: Credentials) -> Optional[StoreToken]:
    """Return the tokens that an application was submitted with, or None if its store needs none.

    The ResourceManager renews them as long as possible, except a metastore's token. Raises CredentialsError.
    """
    secret = credentials.secrets.get(contract.SECRET_STORE_TOKEN)
    if secret is None:
        return None
    text = secret.decode("ascii", "replace")
    others = [OtherToken(name, text, _until_ms(name, text)) for name, text in other_tokens(credentials.secrets).items()]
    return StoreToken(text, _id(text).latest_ms, others)


def other_tokens(secrets: Mapping[str, bytes]) -> dict[str, str]:
    """Return the text of each token other than the store's, by its name."""
    prefix = contract.SECRET_OTHER_TOKEN_PREFIX
    return {
        name[len(prefix) :]: secret.decode("ascii", "replace")
        for name, secret in secrets.items()
        if name.startswith(prefix)
    }


def put_store_token(credentials: Credentials, text: str, services: list[str]) -> None:
    """Add a WebHDFS delegation token, for the runtime's use and for each HDFS RPC service.

    The copies for RPC services differ from ``text`` only in their kind and service. Hadoop programs, such as
    NodeManagers that localise files, find a token by its service: ``ip:port`` of a NameNode's RPC address, or
    ``ha-hdfs:<nameservice>``. Raises CredentialsError.
    """
    _put(credentials, contract.SECRET_STORE_TOKEN, text, {service: (HDFS_TOKEN, service) for service in services})


def put_other_hdfs_token(credentials: Credentials, name: str, text: str, services: list[str]) -> None:
    """Add a token of another HDFS, named as in URIs, like ``put_store_token``. Raises CredentialsError."""
    where = {service: (HDFS_TOKEN, service) for service in services}
    _put(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + name, text, where)


def put_key_server_token(credentials: Credentials, uri: str, text: str, aliases: list[str]) -> None:
    """Add a token of a key server, for programs that use encryption zones. Raises CredentialsError.

    Hadoop 3 finds the token by the key server's URI, and Hadoop 2 by the alias ``ip:port``.
    """
    kind = Token.from_url_string(text).kind
    _put(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + uri, text, dict.fromkeys([uri, *aliases], (kind, uri)))


def put_metastore_token(credentials: Credentials, uri: str, text: str) -> None:
    """Add a token of a Hive metastore, for programs. Raises CredentialsError.

    Clients look for a token of this kind with an empty service, unless their configuration sets
    ``hive.metastore.token.signature``.
    """
    _put(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + uri, text, {_METASTORE_ALIAS: (HIVE_TOKEN, "")})


def replace_store_token(credentials: Credentials, newer: StoreToken) -> None:
    """Replace the tokens by newer ones, for the same services.

    Ignores tokens of other servers that the application was not submitted with. Raises CredentialsError.
    """
    _replace(credentials, contract.SECRET_STORE_TOKEN, newer.text)
    for other in newer.others:
        _replace(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + other.name, other.text)


def _put(credentials: Credentials, secret: str, text: str, where: Mapping[str, tuple[str, str]]) -> None:
    """``where``: kind and service of the token, by its alias."""
    token = Token.from_url_string(text)
    for alias, (kind, service) in where.items():
        credentials.tokens[alias] = Token(token.identifier, token.password, kind, service)
    credentials.secrets[secret] = text.encode()


def _replace(credentials: Credentials, secret: str, text: str) -> None:
    former = credentials.secrets.get(secret)
    if former is None:
        return
    old = Token.from_url_string(former.decode("ascii", "replace"))
    same = {
        alias: (token.kind, token.service)
        for alias, token in credentials.tokens.items()
        if (token.identifier, token.password) == (old.identifier, old.password)
    }
    _put(credentials, secret, text, same)


def _until_ms(name: str, text: str) -> int:
    """Return a token's expiry in epoch milliseconds."""
    about = _id(text)
    if name.startswith(METASTORE_PREFIX):
        return min(about.latest_ms, about.issued_ms + _METASTORE_LIFE_MS)
    return about.latest_ms


def _id(text: str) -> DelegationTokenId:
    return DelegationTokenId.from_bytes(Token.from_url_string(text).identifier)


class TokenServer(Protocol):
    """Server of delegation tokens: an HDFS, a key server or a Hive metastore. All methods raise StorageError."""

    def get_delegation_token(self, renewer: str) -> Optional[str]: ...

    def renew_delegation_token(self, token: str) -> int: ...


@attrs.frozen
class NewerTokens:
    """Fetched tokens, and errors of servers other than the store. These errors do not affect the fetched tokens."""

    token: StoreToken
    problems: list[StorageError]


def fetch_newer_tokens(store: TokenServer, others: Mapping[str, TokenServer], user: str) -> NewerTokens:
    """Fetch a token of each server, with this process's ``user`` as renewer. Raises StorageError if the store fails.

    Renews each token once, because only a renewal returns the token's expiry. No further renewal is needed until this
    expiry. ``others`` contains the servers by ``OtherToken.name``.
    """
    text, until_ms = _fetch(store, "the store", user)
    found: list[OtherToken] = []
    problems: list[StorageError] = []
    for name, server in others.items():
        try:
            found.append(OtherToken(name, *_fetch(server, name, user)))
        except StorageError as error:
            problems.append(error)
    return NewerTokens(StoreToken(text, until_ms, found), problems)


def _fetch(server: TokenServer, name: str, user: str) -> tuple[str, int]:
    text = server.get_delegation_token(user)
    if text is None:
        raise StorageAuthError(name, "get a token of", "it sent no delegation token, like a cluster without Kerberos")
    return text, server.renew_delegation_token(text)

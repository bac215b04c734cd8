"""The delegation tokens by which an application reaches its store and what else it names, and newer ones for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Protocol

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, DelegationTokenId, Token
from tony_provider.runtime.storage import StorageAuthError, StorageError

KEY_SERVER_PREFIX = "kms://"  # how the name of a key server's token begins


@attrs.frozen
class OtherToken:
    """A delegation token beside the store's, and until when it holds."""

    WRITER_MAY_BE_NEWER = True

    name: str  # of another HDFS, what its URIs name it by; of a key server, its URI (kms://…)
    text: str = attrs.field(repr=False)  # URL-safe, kind "WEBHDFS delegation" or "kms-dt"
    until_ms: int  # epoch, by its server's clock

    @property
    def id(self) -> DelegationTokenId:
        """What the token says of itself. Raises CredentialsError."""
        return _id(self.text)


@attrs.frozen
class StoreToken:
    """A delegation token of the store, until when it holds, and those that come with it."""

    WRITER_MAY_BE_NEWER = True  # than the application that it is brought to

    text: str = attrs.field(repr=False)  # URL-safe, kind "WEBHDFS delegation"
    until_ms: int  # epoch, by the NameNode's clock
    others: list[OtherToken] = attrs.field(factory=list)

    @property
    def id(self) -> DelegationTokenId:
        """What the token says of itself. Raises CredentialsError."""
        return _id(self.text)


def store_token(credentials: Credentials) -> Optional[StoreToken]:
    """The tokens that an application was submitted with; None: its store asks for none.

    The ResourceManager renews them as long as that can be done. Raises CredentialsError.
    """
    secret = credentials.secrets.get(contract.SECRET_STORE_TOKEN)
    if secret is None:
        return None
    text = secret.decode("ascii", "replace")
    others = [OtherToken(name, text, _id(text).latest_ms) for name, text in other_tokens(credentials.secrets).items()]
    return StoreToken(text, _id(text).latest_ms, others)


def other_tokens(secrets: Mapping[str, bytes]) -> dict[str, str]:
    """The text of each token beside the store's, by its name."""
    prefix = contract.SECRET_OTHER_TOKEN_PREFIX
    return {
        name[len(prefix) :]: secret.decode("ascii", "replace")
        for name, secret in secrets.items()
        if name.startswith(prefix)
    }


def put_store_token(credentials: Credentials, text: str, services: list[str]) -> None:
    """Put a WebHDFS delegation token in, once for the runtime's own use, and for each service as HDFS's RPC wants it.

    Identifier and password are the same, only the kind differs. Hadoop's programs, NodeManagers that localise files
    among them, look the others up by their service: ``ip:port`` of a NameNode's RPC address, or
    ``ha-hdfs:<nameservice>``. Raises CredentialsError.
    """
    _put(credentials, contract.SECRET_STORE_TOKEN, text, {service: (HDFS_TOKEN, service) for service in services})


def put_other_hdfs_token(credentials: Credentials, name: str, text: str, services: list[str]) -> None:
    """``put_store_token`` of another HDFS, which URIs name so. Raises CredentialsError."""
    where = {service: (HDFS_TOKEN, service) for service in services}
    _put(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + name, text, where)


def put_key_server_token(credentials: Credentials, uri: str, text: str, aliases: list[str]) -> None:
    """Put a token of a key server in, for programs that read and write encryption zones. Raises CredentialsError.

    Hadoop 3 looks it up by the key server's URI, Hadoop 2 by the alias ``ip:port``.
    """
    kind = Token.from_url_string(text).kind
    _put(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + uri, text, dict.fromkeys([uri, *aliases], (kind, uri)))


def replace_store_token(credentials: Credentials, newer: StoreToken) -> None:
    """Put newer tokens in the places of those that are there, for the same services.

    Of those beside the store's, what an application was not submitted with is left out. Raises CredentialsError.
    """
    _replace(credentials, contract.SECRET_STORE_TOKEN, newer.text)
    for other in newer.others:
        _replace(credentials, contract.SECRET_OTHER_TOKEN_PREFIX + other.name, other.text)


def _put(credentials: Credentials, secret: str, text: str, where: Mapping[str, tuple[str, str]]) -> None:
    """``where``: kind and service by the alias."""
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


def _id(text: str) -> DelegationTokenId:
    return DelegationTokenId.from_bytes(Token.from_url_string(text).identifier)


class TokenServer(Protocol):
    """Who gives delegation tokens: an HDFS, or a key server. All raise StorageError."""

    def get_delegation_token(self, renewer: str) -> Optional[str]: ...

    def renew_delegation_token(self, token: str) -> int: ...


@attrs.frozen
class NewerTokens:
    """What was fetched, and why others could not be: a server that is away keeps nobody else's token back."""

    token: StoreToken
    problems: list[StorageError]


def fetch_newer_tokens(store: TokenServer, others: Mapping[str, TokenServer], user: str) -> NewerTokens:
    """Fetch one of each server, which ``user``, who we are, renews. Raises StorageError of the store's own.

    Each is renewed once, since only that tells its end; it does until then without anybody's help. ``others``: by the
    names that ``OtherToken`` has.
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
        raise StorageAuthError(name, "get a token of", "it gives no delegation token, as if it had no Kerberos")
    return text, server.renew_delegation_token(text)

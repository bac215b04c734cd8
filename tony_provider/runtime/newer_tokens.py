"""Fetching newer tokens for an application: of its store, of other HDFS that it names, of a key server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Protocol

import attrs

from tony_provider.runtime.protocol.store_token import OtherToken, StoreToken
from tony_provider.runtime.storage import StorageAuthError, StorageError


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

"""The credentials of one container, as the executor holds them once it has taken them out of the token file."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, KEY_SERVER_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.store_token import StoreToken, replace_store_token

_OF_HDFS = frozenset({HDFS_TOKEN, KEY_SERVER_TOKEN})


class ContainerCredentials:
    """Tokens and secrets of a container. Safe from several threads at once."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self.version = 0  # counts the newer tokens

    @property
    def secrets(self) -> Mapping[str, bytes]:
        return self._credentials.secrets

    def hdfs_tokens(self) -> tuple[int, dict[str, Token]]:
        """The version, and the delegation tokens of HDFS and its key servers by their aliases."""
        with self._lock:
            tokens = self._credentials.tokens.items()
            return self.version, {alias: token for alias, token in tokens if token.kind in _OF_HDFS}

    def take_store_token(self, newer: StoreToken) -> None:
        """Have newer tokens in the places of those that are there. Raises CredentialsError."""
        with self._lock:
            replace_store_token(self._credentials, newer)
            self.version += 1

"""The credentials of one container, as the executor holds them once it has taken them out of the token file."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.store_token import replace_store_token


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
        """The version, and HDFS's delegation tokens by their aliases."""
        with self._lock:
            tokens = self._credentials.tokens.items()
            return self.version, {alias: token for alias, token in tokens if token.kind == HDFS_TOKEN}

    def take_store_token(self, text: str) -> None:
        """Have a newer token of the store in the place of the one that is there. Raises CredentialsError."""
        with self._lock:
            replace_store_token(self._credentials, text)
            self.version += 1

"""The delegation token by which an application reaches its store, and a newer one that is brought to it."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.hadoop.delegation_token_id import DelegationTokenId
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, Token


@attrs.frozen
class StoreToken:
    """A delegation token of the store, and until when it holds."""

    text: str = attrs.field(repr=False)  # URL-safe, kind "WEBHDFS delegation"
    until_ms: int  # epoch, by the NameNode's clock

    @property
    def id(self) -> DelegationTokenId:
        """What the token says of itself. Raises CredentialsError."""
        return DelegationTokenId.from_bytes(Token.from_url_string(self.text).identifier)


def store_token(credentials: Credentials) -> Optional[StoreToken]:
    """The token that an application was submitted with; None: its store asks for none.

    The ResourceManager renews it as long as that can be done. Raises CredentialsError.
    """
    secret = credentials.secrets.get(contract.SECRET_STORE_TOKEN)
    if secret is None:
        return None
    token = StoreToken(secret.decode("ascii", "replace"), 0)
    return attrs.evolve(token, until_ms=token.id.latest_ms)


def put_store_token(credentials: Credentials, text: str, services: list[str]) -> None:
    """Put a WebHDFS delegation token in, once for the runtime's own use, and for each service as HDFS's RPC wants it.

    Identifier and password are the same, only the kind differs. Hadoop's programs, NodeManagers that localise files
    among them, look the others up by their service: ``ip:port`` of a NameNode's RPC address, or
    ``ha-hdfs:<nameservice>``. Raises CredentialsError.
    """
    token = Token.from_url_string(text)
    for service in services:
        credentials.tokens[service] = Token(token.identifier, token.password, HDFS_TOKEN, service)
    credentials.secrets[contract.SECRET_STORE_TOKEN] = text.encode()


def replace_store_token(credentials: Credentials, text: str) -> None:
    """Put a newer token in the place of the one that is there, for the same services. Raises CredentialsError."""
    put_store_token(credentials, text, [token.service for token in credentials.of_kind(HDFS_TOKEN)])

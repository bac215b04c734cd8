"""Delegation tokens of Hadoop's key management server (KMS), which manages the keys of encryption zones.

The REST interface for tokens is below ``<address>/v1/``. Hadoop's package
org.apache.hadoop.security.token.delegation.web defines this interface. Its errors have the same form as WebHDFS errors.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import attrs

from tony_provider.runtime.storage import errors
from tony_provider.runtime.storage.webhdfs.transport import (
    BROKEN,
    Deadline,
    Negotiate,
    NotNow,
    Transport,
    WebHdfsConfig,
    check_answer,
    describe_failure,
)

T = TypeVar("T")

SCHEME = "kms"
_SCHEMES = ("http", "https")
_PORT = 9600  # default port of Hadoop 3 for both schemes
_SECONDS = 10.0  # timeout for all instances together; short, because many jobs do not need the keys


def key_server_addresses(uri: str) -> list[str]:
    """Return the web addresses of a key server's instances, given a URI like ``kms://http@host1;host2:9600/kms``.

    Raises ValueError for an invalid URI.
    """
    parts = urlsplit(uri)
    scheme, separator, hosts = parts.netloc.partition("@")
    host_list, _, port = hosts.partition(":")
    if parts.scheme != SCHEME or not separator or scheme not in _SCHEMES or not host_list:
        raise ValueError(f"{uri!r} is no key server's URI; use kms://http@host:9600/kms or kms://https@host:9600/kms")
    return [f"{scheme}://{host}:{port or _PORT}{parts.path.rstrip('/')}" for host in host_list.split(";")]


class KeyServer:
    """Client for delegation tokens of a key server. Authenticates by Kerberos, and may act for a proxy user."""

    def __init__(self, uri: str, webhdfs: WebHdfsConfig, negotiate: Negotiate) -> None:
        """``webhdfs`` contains the timeouts, the proxy user and the trusted certificates. Raises ValueError."""
        self.uri = uri
        self.addresses = key_server_addresses(uri)
        config = attrs.evolve(webhdfs, addresses=self.addresses)
        self._proxy_user = config.proxy_user
        self._transport = Transport(config)
        self._negotiate = negotiate

    def get_delegation_token(self, renewer: str) -> str:
        """Return a token (URL-safe string, kind ``kms-dt``). Raises StorageError."""
        answer = self._ask("GET", "GETDELEGATIONTOKEN", "get a token of", {"renewer": renewer})
        return self._understood(lambda: str(answer["Token"]["urlString"]))

    def renew_delegation_token(self, token: str) -> int:
        """Renew a token and return its new expiry in epoch ms. This process's user must be the token's renewer."""
        answer = self._ask("PUT", "RENEWDELEGATIONTOKEN", "renew a token of", {"token": token})
        return self._understood(lambda: int(answer["long"]))

    def cancel_delegation_token(self, token: str) -> None:
        self._ask("PUT", "CANCELDELEGATIONTOKEN", "cancel a token of", {"token": token})

    def _ask(self, method: str, op: str, what: str, params: dict[str, str]) -> dict[str, Any]:
        deadline = Deadline(_SECONDS)
        cause: Optional[BaseException] = None
        for address in self.addresses:
            try:
                return self._ask_one(address, method, op, what, params, deadline)
            except (NotNow, *BROKEN) as error:
                cause = error
                said = describe_failure(error)
        raise errors.StorageUnreachable(self.uri, what, f"{address}: {said}") from cause

    def _ask_one(
        self, address: str, method: str, op: str, what: str, params: dict[str, str], deadline: Deadline
    ) -> dict[str, Any]:
        who = {"doAs": self._proxy_user} if self._proxy_user else {}
        url = f"{address}/v1/?{urlencode({'op': op, **params, **who}, quote_via=quote)}"
        spnego = self._negotiate(urlsplit(address).hostname or "")
        with closing(self._transport.connect(address, deadline)) as connection:
            answer = self._transport.exchange(connection, method, url, spnego, deadline)
        check_answer(answer, self.uri, what)
        return self._understood(lambda: answer.json if answer.body.strip() else {})

    def _understood(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ValueError, KeyError, TypeError) as error:
            raise errors.StorageError(self.uri, "use", f"its answer is not that of a key server: {error!r}") from error

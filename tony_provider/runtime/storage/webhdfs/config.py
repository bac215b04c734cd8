"""The settings of WebHDFS: where it is and how patient to be. They hold no secret, and may travel in the open."""

from __future__ import annotations

from typing import Callable, Optional, Protocol
from urllib.parse import urlsplit

import attrs


class SpnegoExchange(Protocol):
    """SPNEGO for one request: that we are who we say, and then that the server is."""

    authorization: str
    """The value of the request's ``Authorization`` header."""

    def check(self, answer: Optional[str]) -> None:
        """Check the answer's ``WWW-Authenticate`` header: only the server that the ticket is for can write it.

        Raises what says that it did not prove itself.
        """


Negotiate = Callable[[str], SpnegoExchange]
"""Begins an exchange with the server of a host name (service ``HTTP@host``).

Called for each request to a NameNode, from whatever threads use the storage."""


def _is_address(_instance: object, _attribute: object, value: list[str]) -> None:
    if not value:
        raise ValueError("WebHDFS needs the address of at least one NameNode")
    for address in value:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{address!r} is no WebHDFS address; write http://host:9870 or https://host:9871")


def _without_trailing_slash(addresses: list[str]) -> list[str]:
    return [address.rstrip("/") for address in addresses]


@attrs.frozen
class WebHdfsConfig:
    """Where a cluster's WebHDFS is, and how long to wait for it. Raises ValueError for addresses that cannot be ones.

    The proxy variables of the environment are never used.
    """

    addresses: list[str] = attrs.field(converter=_without_trailing_slash, validator=_is_address)
    """``http(s)://host:port`` of every NameNode of one cluster; a gateway's path may follow."""
    user: Optional[str] = None
    """Whom to be on a cluster without Kerberos (``user.name``). Left out when there is a token or Kerberos."""
    proxy_user: Optional[str] = None
    """Whom to act for (``doas``); ``user`` or the Kerberos principal must be allowed to. Not sent with a token."""
    ca_file: Optional[str] = None
    """PEM file that https servers are checked against; default: the system's."""
    verify: bool = True
    """Whether https servers are checked at all."""
    authorities: list[str] = attrs.field(factory=list)
    """What may stand between ``hdfs://`` and the path (beside nothing); empty: anything, it is not looked at."""
    connect_timeout: float = 10.0
    """Seconds for one connection to open."""
    response_timeout: float = 20.0
    """Seconds that one NameNode may take to answer before the next is tried."""
    stream_timeout: float = 120.0
    """Seconds without a byte until a transfer from or to a DataNode that still answers is given up.

    The first attempts take only a part of it."""
    silence_timeout: float = 4.0
    """Seconds without a byte until a DataNode is probed. Each probe takes at most half of it."""
    timeout: float = 60.0
    """Seconds for one request to the NameNodes in all, with every retry and failover."""

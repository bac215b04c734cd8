"""A quick check that somebody listens where the connection says, before a job is begun there.

The calls themselves are patient, since a running job has to outlast failovers. What refuses connections before there is
any job is seldom a failover and often an address that is wrong: that is told within seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import attrs
from requests.utils import get_environ_proxies

from tony_provider.cluster.errors import ClusterError, ClusterUnreachable, StagingFailed
from tony_provider.cluster.settings import YarnSettings

TIMEOUT = 10.0  # seconds that all servers of a kind may refuse: one may just be starting
_CONNECT_SECONDS = 2.0  # after which a server is silent, which is for the calls to wait for
_PAUSE = 0.5  # seconds between two rounds
_PORTS = {"http": 80, "https": 443}


def expect_servers(yarn: YarnSettings, timeout: float = TIMEOUT) -> None:
    """Check that ResourceManagers and NameNodes take connections. Blocks for ``timeout`` seconds, or little more.

    Raises ClusterUnreachable when every ResourceManager refuses connections or has a name without an address,
    StagingFailed when every NameNode does. One of them that takes connections, or is silent, is enough.
    """
    deadline = time.monotonic() + timeout
    managers = [address for address in yarn.resource_managers if not _is_behind_proxy(address, yarn)]
    if len(managers) == len(yarn.resource_managers):
        _expect("ResourceManager", managers, deadline, timeout, ClusterUnreachable)
    _expect("NameNode", yarn.webhdfs.addresses, deadline, timeout, StagingFailed)


def expect_store(yarn: YarnSettings, timeout: float) -> None:
    """Check that a NameNode takes connections, as above. Raises StagingFailed."""
    _expect("NameNode", yarn.webhdfs.addresses, time.monotonic() + timeout, timeout, StagingFailed)


def _is_behind_proxy(address: str, yarn: YarnSettings) -> bool:
    return yarn.trust_env and bool(get_environ_proxies(address))


def _expect(kind: str, addresses: Sequence[str], deadline: float, timeout: float, error: type[ClusterError]) -> None:
    while all(refusals := _refusals(addresses)):
        if time.monotonic() + _PAUSE >= deadline:
            raise error(
                f"no {kind} is there: {'; '.join(refusals)} (for {timeout:g} s); check the addresses in the tony "
                "connection, and that the server runs"
            )
        time.sleep(_PAUSE)


@attrs.define
class _Knock:
    """One connection, in a thread of its own: looking up a name knows no deadline."""

    address: str
    refusal: str = ""  # why nobody is there; empty: somebody may be

    def run(self) -> None:
        parts = urlsplit(self.address)
        port = parts.port or _PORTS[parts.scheme]
        try:
            socket.create_connection((parts.hostname, port), _CONNECT_SECONDS).close()
        except socket.gaierror:
            self.refusal = f"the name {parts.hostname!r} has no address here"
        except ConnectionRefusedError:
            self.refusal = f"nothing listens on port {port} of {parts.hostname}"
        except OSError:
            return  # silent, or not to be reached now


def _refusals(addresses: Sequence[str]) -> list[str]:
    knocks = [_Knock(address) for address in addresses]
    threads = [threading.Thread(target=knock.run, name="tony-knock", daemon=True) for knock in knocks]
    until = time.monotonic() + _CONNECT_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [knock.refusal for knock in knocks]

"""YARN's web proxies: whether a request comes from one of their hosts, as Hadoop's AmIpFilter has it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.address import canonical_host
from tony_provider.runtime.deadline import within

log = logging.getLogger(__name__)

_RESOLVE_SECONDS = 5.0  # for one name
_SOONEST = 5.0  # seconds between two look-ups, however many strangers call
_LATEST = 300.0  # seconds that a look-up is believed
# A ResourceManager that calls itself so is on this machine, and sends from the address that the machine's name has.
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Proxies:
    """The addresses of the web proxies' hosts, looked up when they are needed."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._addresses: dict[str, frozenset[str]] = {host: frozenset() for host in hosts}
        if not self._addresses.keys().isdisjoint(_THIS_MACHINE):
            self._addresses[socket.gethostname()] = frozenset()
        self._resolved_at: Optional[float] = None
        self._resolving = asyncio.Lock()

    async def include(self, source: str) -> bool:
        """Whether this address is one of the proxies'.

        Names are looked up when they are needed: a proxy may get another address while the job runs.
        """
        address = canonical_host(source)
        async with self._resolving:
            now = asyncio.get_running_loop().time()
            age = _LATEST if self._resolved_at is None else now - self._resolved_at
            if age >= _LATEST or (age >= _SOONEST and not self._knows(address)):
                await self._resolve_all()
        return self._knows(address)

    def know(self, source: str) -> bool:
        """Whether this address is one of the proxies' by what was looked up last."""
        return self._knows(canonical_host(source))

    async def look_up(self) -> None:
        """Look the names up again, unless that was done a moment ago."""
        async with self._resolving:
            now = asyncio.get_running_loop().time()
            if self._resolved_at is None or now - self._resolved_at >= _SOONEST:
                await self._resolve_all()

    async def _resolve_all(self) -> None:
        self._resolved_at = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._resolve(host) for host in self._addresses))

    def _knows(self, address: str) -> bool:
        return any(address in addresses for addresses in self._addresses.values())

    async def _resolve(self, host: str) -> None:
        """What a name meant last is believed while nobody says what it means now."""
        loop = asyncio.get_running_loop()
        try:
            found = await within(loop.getaddrinfo(host, None, type=socket.SOCK_STREAM), _RESOLVE_SECONDS)
        except (OSError, UnicodeError, asyncio.TimeoutError) as error:
            log.warning("the web proxy's host %s cannot be resolved: %s", host, error)
            return
        self._addresses[host] = frozenset(canonical_host(str(address[0])) for _, _, _, _, address in found)

"""The application master's own address on the web, from before it registers until it leaves."""

from __future__ import annotations

import attrs

from tony_provider.runtime.am.backends import open_gate
from tony_provider.runtime.am.web.control import Steered
from tony_provider.runtime.am.web.gate import Gate
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.site import Site, router
from tony_provider.runtime.application import ApplicationDescription


@attrs.frozen
class Front:
    gate: Gate
    _server: WebServer
    _description: ApplicationDescription

    @classmethod
    async def open(cls, description: ApplicationDescription, host: str, user: str) -> Front:
        """``user``: see ``open_gate``. Raises OSError."""
        gate = open_gate(description, user)
        return cls(gate, await WebServer.bind(host, description.job.port_range), description)

    @property
    def url(self) -> str:
        return self._server.url

    async def serve(self, master: Steered) -> None:
        await self._server.start(Site(self.gate, router(master, self._description.job.timeouts)).answer)

    async def close(self) -> None:
        await self._server.stop()

"""The application master's own address on the web, from before it registers until it leaves."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.backends import open_gate
from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.tails import Tails
from tony_provider.runtime.am.web.gate import Gate
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.site import Site, router
from tony_provider.runtime.am.web.tensorboard.asking import Asking
from tony_provider.runtime.am.web.tensorboard.routes import TensorBoard
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.storage import Storage


@attrs.define(eq=False)
class Front:
    gate: Gate
    _server: WebServer
    _description: ApplicationDescription
    _storage: Storage
    _tails: Optional[Tails] = None

    @classmethod
    async def open(cls, description: ApplicationDescription, storage: Storage, host: str, user: str) -> Front:
        """``user``: see ``open_gate``. Raises OSError."""
        gate = open_gate(description, user)
        return cls(gate, await WebServer.bind(host, description.job.port_range), description, storage)

    @property
    def url(self) -> str:
        return self._server.url

    async def serve(self, master: Master) -> None:
        job, questions = self._description.job, master.executors.questions
        self._tails = Tails(questions, self._storage, self._description.application_dir)
        tensorboard = TensorBoard(Asking(questions), master.status) if job.tensorboard else None
        routes = router(
            master,
            job.timeouts,
            self._tails,
            places=tensorboard.places if tensorboard else tuple,
            more=tensorboard.routes if tensorboard else (),
        )
        await self._server.start(Site(self.gate, routes).answer)

    async def close(self) -> None:
        await self._server.stop()
        if self._tails:
            self._tails.close()

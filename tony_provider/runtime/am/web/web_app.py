"""The application master's web server as a whole, from before it registers until it leaves."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.log_tails import LogTails
from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.web.authenticator import Authenticator
from tony_provider.runtime.am.web.page.curves import SECONDS, JobCurves
from tony_provider.runtime.am.web.router import Route, Router
from tony_provider.runtime.am.web.routes import Routes, router
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.tensorboard.tensorboard_pages import TensorBoardPages
from tony_provider.runtime.am.web.tensorboard.tensorboard_routes import TensorBoard
from tony_provider.runtime.am.web.tunnels.tunnel_route import Tunnels
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.storage import Storage

_LOOK_UP = 60.0  # seconds between two looks at the addresses of those who may be answered


@attrs.define(eq=False)
class WebApp:
    """The web server of one application master: open first, serving once there is a master, closed at the end."""

    authenticator: Authenticator
    _server: WebServer
    _description: ApplicationDescription
    _storage: Storage
    _sealed: ssl.SSLContext  # of the master's end of what is sealed
    _tokens: Optional[Route]  # by which a newer token of the store is brought; None: it asks for none
    _secrets: Sequence[str] = attrs.field(factory=tuple, repr=False)
    _tails: Optional[LogTails] = None
    _tunnels: Optional[Tunnels] = None
    _curves: JobCurves = attrs.field(factory=JobCurves)
    _drawing: Optional[asyncio.Task[None]] = None
    _looking_up: Optional[asyncio.Task[None]] = None

    @classmethod
    async def open(
        cls,
        description: ApplicationDescription,
        storage: Storage,
        host: str,
        authenticator: Authenticator,
        sealed: ssl.SSLContext,
        *,
        tokens: Optional[Route] = None,
        secrets: Sequence[str] = (),
        tls: Optional[ssl.SSLContext] = None,
    ) -> WebApp:
        """``secrets``: values that are masked in what tasks have printed; ``tls``: None is http. Raises OSError."""
        server = await WebServer.bind(host, description.job.port_range, tls)
        return cls(authenticator, server, description, storage, sealed, tokens, secrets)

    @property
    def url(self) -> str:
        return self._server.url

    async def begin(self) -> None:
        """Serve what there is before there is a master: it may wait for a token."""
        self._looking_up = asyncio.create_task(self._look_up(), name="addresses of the proxies")
        if self._tokens:
            await self._start(Router([self._tokens]))

    async def _start(self, routes: Router) -> None:
        await self._server.start(Routes(self.authenticator, routes).answer, self.authenticator.expects)

    async def _look_up(self) -> None:
        while True:
            await self.authenticator.look_up()
            await asyncio.sleep(_LOOK_UP)

    async def serve(self, master: Master) -> None:
        job, executor_requests = self._description.job, master.executors.executor_requests
        self._tails = LogTails(executor_requests, self._storage, self._description.application_dir, self._secrets)
        tensorboard = TensorBoard(TensorBoardPages(executor_requests), master.status) if job.tensorboard else None
        self._tunnels = Tunnels(self._sealed, master.executors.tunnel_streams)
        routes = router(
            master,
            job.timeouts,
            self._tails,
            curves=self._curves,
            use=master.use,
            places=tensorboard.places if tensorboard else tuple,
            more=[
                self._tunnels.route,
                *(tensorboard.routes if tensorboard else ()),
                *([self._tokens] if self._tokens else ()),
            ],
        )
        self._drawing = asyncio.create_task(self._draw(master), name="curves")
        await self._start(routes)

    async def _draw(self, master: Master) -> None:
        """Follow the job's numbers, whether or not somebody looks at the page."""
        every = max(SECONDS, timing.heartbeat_interval(self._description.job.size))
        while True:
            self._curves.add(master.status(), master.use())
            await asyncio.sleep(every)

    async def close(self) -> None:
        if self._tunnels:
            self._tunnels.close()
        await self._server.stop()
        for task in filter(None, (self._drawing, self._looking_up)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._tails:
            self._tails.close()

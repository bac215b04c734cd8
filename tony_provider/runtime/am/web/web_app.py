"""The application master's web server as a whole, with all routes.

It opens before the master registers and closes when the master ends.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Optional

import attrs

from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.web import task_logs
from tony_provider.runtime.am.web.authentication import Authenticator, check_json, check_no_browser
from tony_provider.runtime.am.web.control import STORY_PATH, Control
from tony_provider.runtime.am.web.job_view import SECONDS, JobCurves
from tony_provider.runtime.am.web.page import JobPage, refusal_page, wants_page
from tony_provider.runtime.am.web.prometheus import Metrics
from tony_provider.runtime.am.web.server import (
    AccessType,
    Head,
    HttpError,
    HttpRequest,
    HttpResponse,
    ReadBody,
    Route,
    Router,
    WebServer,
)
from tony_provider.runtime.am.web.task_logs import Logs, LogTails
from tony_provider.runtime.am.web.tensorboard_proxy import TensorBoard, TensorBoardPages
from tony_provider.runtime.am.web.tunnels import Tunnels
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.storage import Storage

_LOOK_UP = 60.0  # seconds between two refreshes of the expected addresses


@attrs.define(eq=False)
class WebApp:
    """The web server of one application master. ``open`` binds its port, ``serve`` adds the master's routes."""

    authenticator: Authenticator
    _server: WebServer
    _description: ApplicationDescription
    _storage: Storage
    _sealed: ssl.SSLContext  # TLS settings of the master's end of sealed conversations
    _tokens: Optional[Route]  # route that receives new store tokens; None if the store needs no token
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
        """Bind the server to a port. If ``tls`` is None, the server uses plain http. Raises OSError.

        ``secrets`` are values that are masked in the output of tasks.
        """
        server = await WebServer.bind(host, description.job.port_range, tls)
        return cls(authenticator, server, description, storage, sealed, tokens, secrets)

    @property
    def url(self) -> str:
        return self._server.url

    async def begin(self) -> None:
        """Serve only the token route, because the master may need a new token before it can start."""
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
        directory, unstored = self._description.application_dir, master.executors.logs.unstored
        self._tails = LogTails(executor_requests, self._storage, directory, self._secrets, unstored)
        tensorboard = TensorBoard(TensorBoardPages(executor_requests), master.status) if job.tensorboard else None
        self._tunnels = Tunnels(self._sealed, master.executors.tunnel_streams)
        routes = make_router(
            master,
            job.timeouts,
            self._tails,
            JobPage(
                master.status,
                tensorboard.places if tensorboard else tuple,
                self._curves,
                master.use,
                partial(may_modify, self.authenticator),
                [name for name, task in job.tasks.items() if task.max_instances],
            ),
            [
                self._tunnels.route,
                *(tensorboard.routes if tensorboard else ()),
                *([self._tokens] if self._tokens else ()),
            ],
        )
        self._drawing = asyncio.create_task(self._draw(master), name="curves")
        await self._start(routes)

    async def _draw(self, master: Master) -> None:
        """Record the job's numbers for curves, independently of page views."""
        every = max(SECONDS, limits.heartbeat_interval(self._description.job.size))
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


# Default headers: browsers must not execute the content of a response, or show it in a frame.
_GUARDS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Routes:
    """Answers requests: authenticates the user, finds the route, and checks access."""

    def __init__(self, authenticator: Authenticator, router: Router) -> None:
        self._authenticator = authenticator
        self._router = router

    async def answer(self, source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        """Return the answer to a request. Browsers get a page for an error. For other clients, HttpError is raised."""
        try:
            return _guarded(await self._answer(source, head, read_body))
        except HttpError as error:
            if wants_page(head):
                return refusal_page(error)
            raise

    async def _answer(self, source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        """Answer a request. Authentication comes first, so that strangers do not learn which pages exist."""
        user = await self._authenticator.visitor(source, head)
        route = self._router.find(head)
        await self._authenticator.check(user, route.access)
        if route.method == "PUT":
            check_json(head)
            if route.access is AccessType.MODIFY:
                check_no_browser(head)
        return await route.handle(HttpRequest(head, user, await read_body()))


async def may_modify(authenticator: Authenticator, user: str) -> bool:
    """Return whether the user may change the job."""
    try:
        await authenticator.check(user, AccessType.MODIFY)
    except HttpError:
        return False
    return True


def _guarded(response: HttpResponse) -> HttpResponse:
    """Return the response with headers that prevent other sites from framing it or learning its address."""
    return attrs.evolve(response, headers={**_GUARDS, **response.headers})


def make_router(
    master: Master, timeouts: Timeouts, tails: LogTails, page: JobPage, more: Iterable[Route] = ()
) -> Router:
    """Return the router for everything that the application master serves. ``more`` are additional routes."""
    control, logs = Control(master, timeouts), Logs(master.status, tails)
    return Router(
        [
            Route("GET", "/", AccessType.VIEW, page.whole),
            Route("GET", "/sections", AccessType.VIEW, page.sections),
            Route("GET", "/status", AccessType.VIEW, control.status),
            Route("GET", STORY_PATH, AccessType.VIEW, control.story, below=True),
            Route("GET", "/metrics", AccessType.VIEW, Metrics(master.status).page),
            Route("GET", task_logs.LOGS_PATH, AccessType.VIEW, logs.tail, below=True),
            Route("GET", task_logs.OUTPUT_PATH, AccessType.VIEW, logs.piece, below=True),
            *control.routes,
            *more,
        ]
    )

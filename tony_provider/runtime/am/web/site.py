"""What the application master serves over HTTP: who is let in, and where to."""

from __future__ import annotations

from tony_provider.runtime.am.web.connection import ReadBody
from tony_provider.runtime.am.web.control import Control, Steered
from tony_provider.runtime.am.web.gate import Gate
from tony_provider.runtime.am.web.messages import Head, Request, Response
from tony_provider.runtime.am.web.router import Access, Route, Router
from tony_provider.runtime.spec.model import Timeouts


class Site:
    def __init__(self, gate: Gate, router: Router) -> None:
        self._gate = gate
        self._router = router

    async def answer(self, source: str, head: Head, read_body: ReadBody) -> Response:
        """Raises HttpError. A stranger does not even learn what there is."""
        user = await self._gate.visitor(source, head)
        route = self._router.find(head)
        await self._gate.check(user, route.access)
        return await route.handle(Request(head, user, await read_body()))


def router(master: Steered, timeouts: Timeouts) -> Router:
    control = Control(master, timeouts)
    return Router(
        [
            Route("GET", "/", Access.VIEW, control.status),
            Route("GET", "/status", Access.VIEW, control.status),
            Route("PUT", "/control/stop", Access.MODIFY, control.stop),
            Route("PUT", "/control/checkpoint", Access.MODIFY, control.checkpoint),
        ]
    )

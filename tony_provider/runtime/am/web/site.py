"""What the application master serves over HTTP: who is let in, and where to."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.runtime.am.tails import Tails
from tony_provider.runtime.am.web import logs
from tony_provider.runtime.am.web.connection import ReadBody
from tony_provider.runtime.am.web.control import Control, Steered
from tony_provider.runtime.am.web.gate import Gate
from tony_provider.runtime.am.web.logs import Logs
from tony_provider.runtime.am.web.messages import Head, HttpError, Request, Response
from tony_provider.runtime.am.web.page.page import Page, Places
from tony_provider.runtime.am.web.page.refusal import refusal, wants_page
from tony_provider.runtime.am.web.router import Access, Route, Router
from tony_provider.runtime.spec.model import Timeouts


class Site:
    def __init__(self, gate: Gate, router: Router) -> None:
        self._gate = gate
        self._router = router

    async def answer(self, source: str, head: Head, read_body: ReadBody) -> Response:
        """Raises HttpError."""
        try:
            return await self._answer(source, head, read_body)
        except HttpError as error:
            if wants_page(head):
                return refusal(error)
            raise

    async def _answer(self, source: str, head: Head, read_body: ReadBody) -> Response:
        """A stranger does not even learn what there is."""
        user = await self._gate.visitor(source, head)
        route = self._router.find(head)
        await self._gate.check(user, route.access)
        return await route.handle(Request(head, user, await read_body()))


def router(
    master: Steered, timeouts: Timeouts, tails: Tails, *, places: Places = tuple, more: Iterable[Route] = ()
) -> Router:
    """``places`` are links of the job's page, and ``more`` what is there beside it."""
    control, page, log = Control(master, timeouts), Page(master.status, places), Logs(master.status, tails)
    return Router(
        [
            Route("GET", "/", Access.VIEW, page.whole),
            Route("GET", "/sections", Access.VIEW, page.sections),
            Route("GET", "/status", Access.VIEW, control.status),
            Route("GET", logs.PATH, Access.VIEW, log.tail, below=True),
            Route("PUT", "/control/stop", Access.MODIFY, control.stop),
            Route("PUT", "/control/checkpoint", Access.MODIFY, control.checkpoint),
            *more,
        ]
    )

"""The entrance of the web server: who is let in, and where to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

import attrs

from tony_provider.runtime.am.log_tails import LogTails
from tony_provider.runtime.am.web import task_logs, task_output
from tony_provider.runtime.am.web.authenticator import Authenticator
from tony_provider.runtime.am.web.control import Control, Steered
from tony_provider.runtime.am.web.http_connection import ReadBody
from tony_provider.runtime.am.web.http_messages import Head, HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.am.web.page.curves import JobCurves
from tony_provider.runtime.am.web.page.page import JobPage, Places, Use
from tony_provider.runtime.am.web.page.refusal import refusal, wants_page
from tony_provider.runtime.am.web.prometheus import Metrics
from tony_provider.runtime.am.web.router import AccessType, Route, Router
from tony_provider.runtime.am.web.senders import check_json, check_no_browser
from tony_provider.runtime.am.web.task_logs import Logs
from tony_provider.runtime.am.web.task_output import TaskOutput
from tony_provider.runtime.spec.model import Timeouts

# For what has no policy of its own: nothing of it is run, and no page has it in a frame.
_GUARDS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Routes:
    """Answers requests: asks the authenticator who sends them, then hands them to their route."""

    def __init__(self, authenticator: Authenticator, router: Router) -> None:
        self._authenticator = authenticator
        self._router = router

    async def answer(self, source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        """The answer to a request. Raises HttpError, where that is not shown as a page."""
        try:
            return _guarded(await self._answer(source, head, read_body))
        except HttpError as error:
            if wants_page(head):
                return refusal(error)
            raise

    async def _answer(self, source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        """A stranger does not even learn what there is."""
        user = await self._authenticator.visitor(source, head)
        route = self._router.find(head)
        await self._authenticator.check(user, route.access)
        if route.method == "PUT":
            check_json(head)
            if route.access is AccessType.MODIFY:
                check_no_browser(head)
        return await route.handle(HttpRequest(head, user, await read_body()))


def _guarded(response: HttpResponse) -> HttpResponse:
    """With what keeps others' pages from showing ours in a frame, and theirs from learning of its address."""
    return attrs.evolve(response, headers={**_GUARDS, **response.headers})


def router(
    master: Steered,
    timeouts: Timeouts,
    tails: LogTails,
    *,
    places: Places = tuple,
    curves: Optional[JobCurves] = None,
    use: Use = dict,
    more: Iterable[Route] = (),
) -> Router:
    """The router with everything that the application master serves.

    ``places`` are links of the job's page, ``curves`` are drawn on it, ``use`` is in its table, and ``more`` is what is
    there beside it.
    """
    control, page = Control(master, timeouts), JobPage(master.status, places, curves, use)
    log = Logs(master.status, tails)
    output = TaskOutput(master.status, tails)
    return Router(
        [
            Route("GET", "/", AccessType.VIEW, page.whole),
            Route("GET", "/sections", AccessType.VIEW, page.sections),
            Route("GET", "/status", AccessType.VIEW, control.status),
            Route("GET", "/metrics", AccessType.VIEW, Metrics(master.status).page),
            Route("GET", task_logs.PATH, AccessType.VIEW, log.tail, below=True),
            Route("GET", task_output.PATH, AccessType.VIEW, output.piece, below=True),
            Route("PUT", "/control/stop", AccessType.MODIFY, control.stop),
            Route("PUT", "/control/checkpoint", AccessType.MODIFY, control.checkpoint),
            Route("PUT", "/control/export", AccessType.MODIFY, control.export),
            Route("PUT", "/control/suspend", AccessType.MODIFY, control.suspend),
            Route("PUT", "/control/resume", AccessType.MODIFY, control.resume),
            Route("PUT", "/control/resize", AccessType.MODIFY, control.resize),
            *more,
        ]
    )

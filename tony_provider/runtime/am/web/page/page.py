"""``GET /``: the job in a browser; ``GET sections``: the page's parts once more, for its own script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Callable, Optional
from urllib.parse import parse_qs

import attrs

from tony_provider.runtime.am.history.container_use import ContainerUse
from tony_provider.runtime.am.web.http_messages import JSON, HttpRequest, HttpResponse
from tony_provider.runtime.am.web.page.curves import JobCurves
from tony_provider.runtime.am.web.page.document import Document
from tony_provider.runtime.am.web.page.html import Html, element
from tony_provider.runtime.am.web.page.job_view import JobView, PageLink
from tony_provider.runtime.am.web.page.sections import EVERY_TASK, SECTIONS
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.status import JobStatus

Places = Callable[[], Sequence[PageLink]]
"""Where else the page leads now, such as to a job's TensorBoard."""

Use = Callable[[], Mapping[str, ContainerUse]]
"""What the tasks use at present, by their names, of what is measured for them."""

_WITHOUT_SCRIPT = 10  # seconds between two loads of the whole page


@attrs.frozen
class Parts:
    """The parts of the page that change while a job runs."""

    title: str
    sections: dict[str, Html]
    note: str
    every: float  # seconds between two looks; 0: nothing will change any more

    @classmethod
    def of(cls, view: JobView) -> Parts:
        percent = f"{view.progress.percent} " if view.progress.percent else ""
        return cls(
            title=f"{percent}{view.state} {view.name}",
            sections={name: section(view) for name, section in SECTIONS.items()},
            note=f"As of {view.updated}",
            every=0 if view.final else timing.heartbeat_interval(len(view.tasks) + view.hidden),
        )


class JobPage:
    """The HTTP handlers of the job's page.

    Every address in it is relative: YARN's proxy serves it below a path of its own.
    """

    def __init__(
        self,
        status: Callable[[], JobStatus],
        places: Places,
        curves: Optional[JobCurves] = None,
        use: Use = dict,
    ) -> None:
        self._status = status
        self._use = use
        self._places = places
        self._curves = curves
        self._document = Document(script="page.js")

    async def whole(self, request: HttpRequest) -> HttpResponse:
        parts = await self._parts(request)
        return await asyncio.to_thread(self._response, parts)

    def _response(self, parts: Parts) -> HttpResponse:
        return self._document.response(
            HTTPStatus.OK,
            parts.title,
            element("main", *(element("section", html, id=name) for name, html in parts.sections.items())),
            element("footer", element("span", parts.note, id="note", role="status")),
            head=_load_again() if parts.every else None,
            data_every=f"{parts.every:g}",
        )

    async def sections(self, request: HttpRequest) -> HttpResponse:
        parts = await self._parts(request)
        body = await asyncio.to_thread(lambda: json.dumps(attrs.asdict(parts)).encode())
        return HttpResponse(HTTPStatus.OK, JSON, body)

    async def _parts(self, request: HttpRequest) -> Parts:
        status, places, use, curves = self._status(), self._places(), self._use(), self._curves
        every_task = _wants_every_task(request.head.query)
        # Hundreds of rows and curves take their time, and executors must be heard meanwhile.
        return await asyncio.to_thread(lambda: Parts.of(JobView.of(status, places, curves, use, every_task=every_task)))


def _load_again() -> Html:
    return element("noscript", element("meta", http_equiv="refresh", content=_WITHOUT_SCRIPT))


def _wants_every_task(query: str) -> bool:
    name, _, value = EVERY_TASK.partition("=")
    return parse_qs(query).get(name) == [value]

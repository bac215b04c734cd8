"""The page of a task's log: its end is in sight, and stays so while it grows."""

from __future__ import annotations

from http import HTTPStatus

import attrs

from tony_provider.runtime.am.web.http_messages import HttpResponse
from tony_provider.runtime.am.web.page import wording
from tony_provider.runtime.am.web.page.document import Document
from tony_provider.runtime.am.web.page.html import Html, element
from tony_provider.runtime.protocol import timing

_SIZES = (64 << 10, 256 << 10, 1 << 20)  # bytes; the last is the most that there is


@attrs.frozen
class LogView:
    """The end of a task's log, and what the page says of it."""

    task: str
    path: str  # relative to the page itself
    attempt: int
    size: int  # bytes, at most
    text: str
    growing: bool  # there may be more of it


class LogPage:
    """Makes the page of a task's log."""

    def __init__(self) -> None:
        self._document = Document(script="log.js")

    def response(self, view: LogView) -> HttpResponse:
        """The page. Its links are relative to its own address, one level below the job's page."""
        every = timing.HEARTBEAT_INTERVAL if view.growing else 0
        head = element(
            "section",
            element("nav", *_ways(view)),
            element("h1", view.task, " ", element("small", f"container {view.attempt}")),
            id="head",
        )
        text = element("section", element("pre", "\n", view.text), id="log")  # the first line's end is not shown
        footer = element("footer", element("span", id="note", role="status"))
        return self._document.response(
            HTTPStatus.OK, f"{view.task} log", element("main", head, text), footer, data_every=f"{every:g}"
        )


def _ways(view: LogView) -> list[Html]:
    attempt = f"&attempt={view.attempt}"
    sizes = (
        element(
            "a",
            f"last {wording.size(size)}",
            href=f"{view.path}?bytes={size}{attempt}",
            aria_current="page" if size == view.size else None,
        )
        for size in _SIZES
    )
    text = element("a", "as text", href=f"{view.path}?bytes={view.size}{attempt}&as=text")
    return [element("a", "The job", href="../"), *sizes, text]

"""HTML of the job's page, its handlers, and general tools to build HTML.

All values are escaped unless they are ``Html`` already. Invisible characters and characters that change the text
direction are removed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import pkgutil
from collections.abc import Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Callable, Optional, Union
from urllib.parse import parse_qs

import attrs

from tony_provider.runtime.am.web.job_view import (
    CoarseCurve,
    JobCurves,
    JobView,
    PageLink,
    ProcessView,
    TaskView,
    Tone,
)
from tony_provider.runtime.am.web.server import JSON, Head, HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.common.quantities import number, span
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN, Metric, MetricValues
from tony_provider.runtime.protocol.status import JobStatus

_VOID = frozenset({"meta", "link", "br", "hr"})


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


Child = Union[str, int, None]
Attribute = Union[str, int, bool, None]


def join(*children: Child) -> Html:
    """Return the children as HTML, one after the other. None is omitted."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """Return an HTML element, such as ``element("td", 5, class_="number")``.

    An attribute that is None or False is omitted, and True has no value. Underscores in an attribute's name become
    hyphens. A final underscore, for Python's keywords, is removed.
    """
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start) if name in _VOID else Html(f"{start}{join(*children)}</{name}>")


def _escaped(child: Child) -> str:
    return child if isinstance(child, Html) else escape(printable(str(child)))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'


HTML = "text/html; charset=utf-8"


class Document:
    """An HTML page without its content. ``style`` and ``script`` are file names."""

    def __init__(self, style: str = "page.css", script: str = "") -> None:
        self._style, self._script = _file(style), _file(script) if script else ""
        # Browsers run and load only what the page itself contains, and connect only to this server.
        policy = (
            f"default-src 'none'; style-src {_hash(self._style)}; script-src {_hash(self._script)}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}

    def response(
        self,
        status: int,
        title: str,
        *children: Html,
        head: Optional[Html] = None,
        headers: Optional[Mapping[str, str]] = None,
        **attributes: str,
    ) -> HttpResponse:
        """Return the page with this content. ``children`` and ``attributes`` belong to its body."""
        start = element(
            "head",
            element("meta", charset="utf-8"),
            element("title", title),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="icon", href="data:,"),
            head,
            element("style", Html(self._style)),
        )
        script = element("script", Html(self._script)) if self._script else None
        body = element("body", *children, script, **attributes)
        whole = join(Html("<!DOCTYPE html>\n"), element("html", start, body, lang="en"), "\n")
        return HttpResponse(status, HTML, whole.encode("utf-8", "replace"), {**self._headers, **(headers or {})})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    data = pkgutil.get_data(__package__, name)
    assert data is not None  # noqa: S101 - it lies beside us in the archive
    return data.decode()


_HEIGHT, _MARGIN = 16, 1.5  # in units of the picture; its horizontal unit is a point of the curve


def sparkline(curve: Optional[CoarseCurve], name: str, write: Callable[[float], str]) -> Optional[Html]:
    """Return the curve as a picture with a text, or None with fewer than two points.

    ``write`` formats a number of this kind. The lower edge is the curve's smallest number, not 0.
    """
    if curve is None or len(curve.known) < 2:
        return None
    known = curve.known
    low, high = min(known), max(known)
    words = f"{name} over {span(curve.span)}: {write(low)} to {write(high)}, now {write(curve.newest)}"
    lines = [element("polyline", points=" ".join(line)) for line in _lines(curve.points, low, high)]
    width = max(1, len(curve.points) - 1)
    picture = {"viewBox": f"0 0 {width} {_HEIGHT}", "preserveAspectRatio": "none", "role": "img"}
    return element("svg", element("title", words), join(*lines), class_="spark", aria_label=words, **picture)


def _lines(points: Sequence[float], low: float, high: float) -> list[list[str]]:
    """Return lines through the known points, with gaps between them."""
    lines: list[list[str]] = [[]]
    for at, point in enumerate(points):
        if math.isnan(point):
            lines.append([])
        else:
            lines[-1].append(f"{at},{_down(point, low, high):.1f}")
    return [line if len(line) > 1 else [*line, *line] for line in lines if line]


def _down(point: float, low: float, high: float) -> float:
    """Return the distance from the picture's upper edge."""
    height = _HEIGHT - 2 * _MARGIN
    if high == low:
        return _HEIGHT / 2
    half = high / 2 - low / 2  # half of the difference, because the whole may overflow
    return _MARGIN + height * (1 - (point / 2 - low / 2) / half)


Section = Callable[[JobView], Html]
Column = tuple[str, Optional[str], Callable[[TaskView], str]]  # title, class, a task's cell

EVERY_TASK = "tasks=all"  # query for all rows


def head(view: JobView) -> Html:
    places = [element("a", place.title, href=place.path) for place in view.places]
    return join(
        element("nav", *places, element("a", "Status as JSON", href="status")),
        element("h1", view.name),
        element("p", _badge(view.state, view.tone), " ", element("span", view.message), class_="state"),
        element("p", element("small", view.application_id)),
    )


def progress(view: JobView) -> Html:
    found = view.progress
    parts = [part for part in (found.percent, found.step and f"step {found.step}", found.speed, found.left) if part]
    if not parts:
        return Html()
    bar = None
    if found.fraction is not None:
        bar = element("progress", found.percent, value=f"{found.fraction:.4f}", max=1, class_=view.tone.value)
    return join(bar, element("p", *(element("span", part) for part in parts)))


def failure(view: JobView) -> Html:
    found = view.failure
    if found is None:
        return Html()
    return join(
        element("h2", f"Failure: {found.kind.value}"),
        element("pre", found.message),
    )


def warnings(view: JobView) -> Html:
    return _section_lines("Warnings", view.warnings)


def troubles(view: JobView) -> Html:
    """Return the systems that the master cannot reach now. The page itself is still up to date."""
    return _section_lines("Out of reach", view.troubles)


def course(view: JobView) -> Html:
    return join(element("h2", "Course"), _list(view.course))


def metrics(view: JobView) -> Html:
    if not view.metrics:
        return Html()
    shown = [(name, _with_curve(value, curve, name, number)) for name, value, curve in view.metrics]
    return join(element("h2", "Metrics"), _list(shown))


def checkpoint(view: JobView) -> Html:
    return join(element("h2", "Checkpoints"), _list(view.checkpoint)) if view.checkpoint else Html()


def tasks(view: JobView) -> Html:
    columns = _columns(view.tasks)
    head = element("tr", *(element("th", title, scope="col", class_=kind) for title, kind, _ in columns))
    rows = (
        row for task in view.tasks for row in (_row(task, columns), *(_process_row(p, columns) for p in task.further))
    )
    more = None
    if view.hidden:
        link = element("a", "show all", href=f"?{EVERY_TASK}")
        more = element("p", f"{view.hidden:,} tasks more: ", link, class_="more")
    return join(
        element("h2", "Tasks ", element("small", view.counts)),
        element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide"),
        more,
    )


SECTIONS: dict[str, Section] = {
    "head": head,
    "progress": progress,
    "troubles": troubles,
    "failure": failure,
    "warnings": warnings,
    "tasks": tasks,
    "metrics": metrics,
    "checkpoint": checkpoint,
    "course": course,
}
"""In the page's order, by the id that each has in it."""


# ---- the table's cells -----------------------------------------------------------------------------------------------


def _row(task: TaskView, columns: Sequence[Column]) -> Html:
    return element("tr", *(element("td", cell(task), class_=kind) for _, kind, cell in columns))


def _process_row(process: ProcessView, columns: Sequence[Column]) -> Html:
    """Return a row below the task's row, with some of its columns."""
    shown = {"Task": process.name, "Step": process.step, "Steps/s": process.speed}
    shown.update({metric.title: process.use[metric.name] for metric in IN_STATUS})
    return element("tr", *(element("td", shown.get(title, ""), class_=kind) for title, kind, _ in columns))


def _state(task: TaskView) -> Html:
    doing = element("small", task.activity) if task.activity else None
    return join(_badge(task.state, task.tone), doing)


def _heartbeat(task: TaskView) -> Html:
    return element("span", task.heartbeat, class_=Tone.BAD.value if task.late else None)


def _node(task: TaskView) -> Html:
    return element("span", task.node.partition(":")[0], title=task.node or None)


def _container(task: TaskView) -> Html:
    return element("span", task.container, title=task.container_id or None)


def _logs(task: TaskView) -> Html:
    former = (join(" ", element("a", f"#{number}", href=path)) for number, path in task.former_logs)
    return join(element("a", "log", href=task.log), *former)


def _speed(task: TaskView) -> Html:
    return _with_curve(task.speed, task.speed_curve, f"Steps/s of {task.name}", number)


def _measured(metric: Metric) -> Callable[[TaskView], Html]:
    def cell(task: TaskView) -> Html:
        text, curve = task.use.get(metric.name, ("", None))
        return _with_curve(text, curve, f"{metric.curve} {task.name}", metric.text)

    return cell


def _with_curve(text: str, curve: Optional[CoarseCurve], name: str, write: Callable[[float], str]) -> Html:
    return join(element("span", text), sparkline(curve, name, write))


def _text(name: str) -> Callable[[TaskView], str]:
    return lambda task: str(getattr(task, name))


_NUMBER = "number"
_COLUMNS: Sequence[Column] = (
    ("Task", None, _text("name")),
    ("Output", None, _logs),
    ("State", None, _state),
    ("Step", _NUMBER, _text("step")),
    ("Steps/s", _NUMBER, _speed),
)
_AFTER_METRICS: Sequence[Column] = (
    ("Heartbeat", _NUMBER, _heartbeat),
    ("Node", None, _node),
    ("Container", _NUMBER, _container),
    ("Starts", _NUMBER, _text("starts")),
)
_EXIT: Column = ("Exit", None, _text("exit"))


def _columns(tasks: Sequence[TaskView]) -> Sequence[Column]:
    """Return the columns, with one for each metric with known values, and with exits if there are any."""
    measured = [
        (metric.title, _NUMBER, _measured(metric))
        for metric in SHOWN
        if metric in IN_STATUS or any(metric.name in task.use for task in tasks)
    ]
    ended = [_EXIT] if any(task.exit for task in tasks) else []
    return [*_COLUMNS, *measured, *_AFTER_METRICS, *ended]


def _badge(text: str, tone: Tone) -> Html:
    return element("b", text, class_=f"badge {tone.value}")


def _section_lines(title: str, lines: Sequence[str]) -> Html:
    return join(element("h2", title), element("ul", *(element("li", line) for line in lines))) if lines else Html()


def _list(pairs: Sequence[tuple[str, str]]) -> Html:
    items = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *items)


Places = Callable[[], Sequence[PageLink]]
"""Where else the page leads now, such as to a job's TensorBoard."""

Use = Callable[[], Mapping[str, MetricValues]]
"""What the tasks use at present, by their names, of what is measured for them."""

_WITHOUT_SCRIPT = 10  # seconds between two loads of the whole page


@attrs.frozen
class Parts:
    """The parts of the page that change while a job runs."""

    title: str
    sections: dict[str, Html]
    note: str
    every: float  # seconds between two refreshes; 0 for a final state

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

    Every link is relative, because YARN's proxy serves the page below another path.
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
        # In a thread: hundreds of rows and curves take time, and executors' messages must not wait.
        return await asyncio.to_thread(lambda: Parts.of(JobView.of(status, places, curves, use, every_task=every_task)))


def _load_again() -> Html:
    return element("noscript", element("meta", http_equiv="refresh", content=_WITHOUT_SCRIPT))


def _wants_every_task(query: str) -> bool:
    name, _, value = EVERY_TASK.partition("=")
    return parse_qs(query).get(name) == [value]


def wants_page(head: Head) -> bool:
    """Return whether a request comes from a browser, which needs a page."""
    return any("text/html" in value for value in head.values("accept"))


def refusal_page(error: HttpError) -> HttpResponse:
    """Return the page for an error."""
    title = HTTPStatus(error.status).phrase
    body = element("main", element("section", element("h1", title), element("p", error.message), id="failure"))
    return Document().response(error.status, title, body, headers=error.headers)

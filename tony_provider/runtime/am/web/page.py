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
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from typing import Any, Callable, Optional, Union
from urllib.parse import parse_qs, quote

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.web.job_view import (
    CoarseCurve,
    JobCurves,
    PageContent,
    PageLink,
    Row,
    Tone,
    checkpoint_facts,
    done,
    done_percent,
    job_tone,
    metric_value,
    summary_facts,
    task_counts,
    task_tone,
)
from tony_provider.runtime.am.web.server import JSON, Head, HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.contract import path_of_task
from tony_provider.runtime.common.quantities import left, number, span, speed, steps
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.job_orders import JOB_ORDERS, RESIZE
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN, Metric, MetricValues
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState, TaskStatus

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
    """Template of an HTML page with its security headers. ``script`` is a file name."""

    def __init__(self, script: str = "") -> None:
        self._style, self._script = _file("page.css"), _file(script) if script else ""
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
        """Return the page. ``children`` are the content of its body, ``attributes`` the HTML attributes of its body."""
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
    assert data is not None  # noqa: S101 - the file is in the same archive
    return data.decode()


_HEIGHT, _MARGIN = 16, 1.5  # in the picture's units; horizontally, the points of the curve are 1 unit apart


def sparkline(curve: Optional[CoarseCurve], name: str, write: Callable[[float], str]) -> Optional[Html]:
    """Return the curve as a picture with a text label, or None if it has fewer than two known points.

    ``write`` formats a value of the curve. The lower edge is the curve's smallest number, not 0.
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
    """Return the distance of a point from the upper edge of the picture."""
    height = _HEIGHT - 2 * _MARGIN
    half = high / 2 - low / 2  # halved, because the full difference may overflow
    if half == 0:  # equal, or differ by less than a float can halve
        return _HEIGHT / 2
    return _MARGIN + height * (1 - (point / 2 - low / 2) / half)


Section = Callable[[PageContent], Html]
Cell = Callable[[PageContent, Any], Child]


@attrs.frozen
class Column:
    """A column of the task table. ``cell`` formats the cell of a task, ``of_process`` that of a further process."""

    title: str
    cell: Cell
    of_process: Cell = lambda page, process: ""
    kind: Optional[str] = None  # CSS class of the cells


EVERY_TASK = "tasks=all"  # URL query that requests the rows of all tasks


def head(page: PageContent) -> Html:
    status = page.status
    places = [element("a", place.title, href=place.path) for place in page.places]
    return join(
        element("nav", *places, element("a", "Status as JSON", href="status")),
        element("h1", status.name),
        element("p", _badge(status.state, job_tone(status)), " ", element("span", status.message), class_="state"),
        element("p", element("small", status.application_id)),
    )


def progress(page: PageContent) -> Html:
    status, percent, fraction = page.status, done_percent(page.status), done(page.status)
    rate = status.steps_per_second
    parts = [
        percent,
        "" if status.step is None else f"step {steps(status.step, status.total_steps)}",
        "" if rate is None else speed(rate),
        left(status.step, status.total_steps, rate) if status.state is JobState.RUNNING else "",
    ]
    if not any(parts):
        return Html()
    bar = None
    if fraction is not None:
        bar = element("progress", percent, value=f"{fraction:.4f}", max=1, class_=job_tone(page.status).value)
    return join(bar, element("p", *(element("span", part) for part in parts if part)))


def failure(page: PageContent) -> Html:
    found = page.status.failure
    if found is None:
        return Html()
    return join(element("h2", f"Failure: {found.cause or found.kind.value}"), element("pre", found.message))


def warnings(page: PageContent) -> Html:
    return _section_lines("Warnings", page.status.warnings)


def troubles(page: PageContent) -> Html:
    """Return the section about systems that the master cannot reach now. The page itself is still up to date."""
    return _section_lines("Unreachable systems", page.status.troubles)


def summary(page: PageContent) -> Html:
    return join(element("h2", "Summary"), _list(summary_facts(page.status)))


def metrics(page: PageContent) -> Html:
    shown = [
        (name, _with_curve(number(value), page.curves.metrics.get(name), name, number))
        for name, value in sorted(page.status.metrics.items())
    ]
    return join(element("h2", "Metrics"), _list(shown)) if shown else Html()


def checkpoint(page: PageContent) -> Html:
    facts = checkpoint_facts(page.status)
    return join(element("h2", "Checkpoints"), _list(facts)) if facts else Html()


def tasks(page: PageContent) -> Html:
    columns = _columns(page)
    head = element("tr", *(element("th", each.title, scope="col", class_=each.kind) for each in columns))
    rows = []
    for task in page.tasks:
        rows.append(element("tr", *(element("td", each.cell(page, task), class_=each.kind) for each in columns)))
        for process in task.further:
            cells = (element("td", each.of_process(page, process), class_=each.kind) for each in columns)
            rows.append(element("tr", *cells))
    more = None
    if hidden := len(page.status.tasks) - len(page.tasks):
        link = element("a", "show all", href=f"?{EVERY_TASK}")
        more = element("p", f"{hidden:,} more tasks: ", link, class_="more")
    return join(
        element("h2", "Tasks ", element("small", task_counts(page.status.tasks))),
        element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide"),
        more,
    )


def actions(page: PageContent) -> Html:
    """Return the commands that change the job, for users who may change it.

    The page has no buttons: YARN's proxy serves the pages of all applications under one address, so a page of another
    application could press them in the user's name.
    """
    offered = [
        order
        for order in JOB_ORDERS
        if page.may_modify and page.status.state in order.states and (page.resizable or order.name != RESIZE)
    ]
    if not offered:
        return Html()
    counts = Counter(task.type for task in page.status.tasks)
    words = " ".join(f"{name}={counts[name]}" for name in page.resizable)
    items = (
        element(
            "div",
            element("dt", order.title),
            element(
                "dd",
                element("code", f"airflow tony {order.command.format(page.status.application_id, words)}"),
                element("p", order.effect),
            ),
        )
        for order in offered
    )
    note = "Run these commands on a machine with Airflow, or use the buttons on the job's page of Airflow's portal."
    return join(element("h2", "Actions ", element("small", note)), element("dl", *items))


SECTIONS: dict[str, Section] = {
    "head": head,
    "progress": progress,
    "troubles": troubles,
    "failure": failure,
    "warnings": warnings,
    "tasks": tasks,
    "metrics": metrics,
    "checkpoint": checkpoint,
    "summary": summary,
    "actions": actions,
}
"""Functions that build the sections of the page, by HTML id, in the order of the page."""


# ---- the table's cells -----------------------------------------------------------------------------------------------


def _name(page: PageContent, row: Row) -> str:
    return row.name


def _logs(page: PageContent, task: TaskStatus) -> Html:
    path = "logs/" + quote(path_of_task(task.name), safe="")
    former = range(task.attempt - 1, max(0, task.attempt - 1 - _MOST_FORMER), -1)
    links = (join(" ", element("a", f"#{number}", href=f"{path}?attempt={number}")) for number in former)
    return join(element("a", "log", href=path), *links)


def _state(page: PageContent, task: TaskStatus) -> Html:
    is_news = task.activity and task.activity != task.state.value.lower()
    return join(_badge(task.state, task_tone(task)), element("small", task.activity) if is_news else None)


def _heartbeat(page: PageContent, task: TaskStatus) -> Html:
    if task.heartbeat_ms is None or task.state.is_final:
        return element("span", "")
    silence = max(0.0, (page.status.updated_ms - task.heartbeat_ms) / 1000)
    late = silence > limits.lost_after(limits.heartbeat_interval(len(page.status.tasks)))
    return element("span", f"{span(silence)} ago", class_=Tone.BAD.value if late else None)


def _node(page: PageContent, task: TaskStatus) -> Html:
    node = task.node or ""
    return element("span", node.partition(":")[0], title=node or None)


def _container(page: PageContent, task: TaskStatus) -> Html:
    return element("span", task.attempt, title=task.container_id or None)


def _exit(page: PageContent, task: TaskStatus) -> str:
    if task.signal:
        return descriptions.signal_name(task.signal)
    return "" if task.exit_code is None else f"code {task.exit_code}"


def _step(page: PageContent, row: Row) -> str:
    return steps(row.progress.step, row.progress.total_steps) if row.progress else ""


def _process_speed(page: PageContent, row: Row) -> str:
    rate = row.progress.steps_per_second if row.progress else None
    return "" if rate is None else number(rate)


def _speed(page: PageContent, task: TaskStatus) -> Html:
    text, curve = _process_speed(page, task), page.curves.speed.get(task.name)
    return _with_curve(text, curve, f"Steps/s of {task.name}", number)


def _metric_column(metric: Metric) -> Column:
    def cell(page: PageContent, task: TaskStatus) -> Html:
        curve = page.curves.use.get((task.name, metric.name))
        return _with_curve(of_process(page, task), curve, f"{metric.curve} {task.name}", metric.text)

    def of_process(page: PageContent, row: Row) -> str:
        return metric.text(metric_value(row, page.use, metric))

    return Column(metric.title, cell, of_process, _NUMBER)


def _with_curve(text: str, curve: Optional[CoarseCurve], name: str, write: Callable[[float], str]) -> Html:
    return join(element("span", text), sparkline(curve, name, write))


_MOST_FORMER = 5  # limit of links to logs of former containers in one row of the table
_NUMBER = "number"
_FIRST = (
    Column("Task", _name, _name),
    Column("Output", _logs),
    Column("State", _state),
    Column("Step", _step, _step, _NUMBER),
    Column("Steps/s", _speed, _process_speed, _NUMBER),
)
_LAST = (
    Column("Heartbeat", _heartbeat, kind=_NUMBER),
    Column("Node", _node),
    Column("Containers", _container, kind=_NUMBER),
    Column("Starts", lambda page, task: task.start, kind=_NUMBER),
)
_EXIT = Column("Exit", _exit)


def _columns(page: PageContent) -> Sequence[Column]:
    """Return the columns. Metrics outside the status, and exits, are omitted if no value is known."""
    measured = [
        _metric_column(metric)
        for metric in SHOWN
        if metric in IN_STATUS or any(metric_value(task, page.use, metric) is not None for task in page.tasks)
    ]
    ended = [_EXIT] if any(_exit(page, task) for task in page.tasks) else []
    return [*_FIRST, *measured, *_LAST, *ended]


def _badge(state: Union[JobState, TaskState], tone: Tone) -> Html:
    return element("b", state.value, class_=f"badge {tone.value}")


def _section_lines(title: str, lines: Sequence[str]) -> Html:
    return join(element("h2", title), element("ul", *(element("li", line) for line in lines))) if lines else Html()


def _list(pairs: Sequence[tuple[str, str]]) -> Html:
    items = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *items)


Places = Callable[[], Sequence[PageLink]]
"""Function that returns further links of the page, such as to the job's TensorBoard."""

MayModify = Callable[[str], Awaitable[bool]]
"""Function that returns whether a user may change the job."""

Use = Callable[[], Mapping[str, MetricValues]]
"""Function that returns the current values of metrics that the status lacks, by task."""

_WITHOUT_SCRIPT = 10  # seconds between two loads of the whole page in browsers without JavaScript


@attrs.frozen
class Parts:
    """The parts of the page that change while a job runs."""

    title: str
    sections: dict[str, Html]
    note: str
    every: float  # seconds between two refreshes; 0 for a final state

    @classmethod
    def of(cls, page: PageContent) -> Parts:
        status, percent = page.status, done_percent(page.status)
        return cls(
            title=f"{f'{percent} ' if percent else ''}{status.state.value} {status.name}",
            sections={name: section(page) for name, section in SECTIONS.items()},
            note=f"As of {moment(status.updated_ms)}",
            every=0 if status.state.is_final else limits.heartbeat_interval(len(status.tasks)),
        )


class JobPage:
    """The HTTP handlers of the job's page.

    The page shows the links from ``places``, the ``curves``, and in its table the values from ``use``. Users that
    ``may_modify`` accepts see the commands that change the job. ``resizable``: see ``PageContent``. Every link is
    relative, because YARN's proxy serves the page below another path.
    """

    def __init__(
        self,
        status: Callable[[], JobStatus],
        places: Places = tuple,
        curves: Optional[JobCurves] = None,
        use: Use = dict,
        may_modify: Optional[MayModify] = None,
        resizable: Sequence[str] = (),
    ) -> None:
        self._status = status
        self._may_modify, self._resizable = may_modify, resizable
        self._use = use
        self._places = places
        self._curves = curves or JobCurves()
        self._document = Document(script="page.js")

    async def whole(self, request: HttpRequest) -> HttpResponse:
        parts = await self._parts(request)
        return await asyncio.to_thread(self._response, parts)

    def _response(self, parts: Parts) -> HttpResponse:
        load_again = element("noscript", element("meta", http_equiv="refresh", content=_WITHOUT_SCRIPT))
        return self._document.response(
            HTTPStatus.OK,
            parts.title,
            element("main", *(element("section", html, id=name) for name, html in parts.sections.items())),
            element("footer", element("span", parts.note, id="note", role="status")),
            head=load_again if parts.every else None,
            data_every=f"{parts.every:g}",
        )

    async def sections(self, request: HttpRequest) -> HttpResponse:
        parts = await self._parts(request)
        body = await asyncio.to_thread(lambda: json.dumps(attrs.asdict(parts)).encode())
        return HttpResponse(HTTPStatus.OK, JSON, body)

    async def _parts(self, request: HttpRequest) -> Parts:
        every_task = _wants_every_task(request.head.query)
        may_modify = self._may_modify is not None and await self._may_modify(request.user)
        content = partial(
            PageContent,
            self._status(),
            self._places(),
            self._curves,
            self._use(),
            every_task,
            may_modify,
            self._resizable,
        )
        # Hundreds of rows and curves take time, and must not delay the messages of executors.
        return await asyncio.to_thread(lambda: Parts.of(content()))


def _wants_every_task(query: str) -> bool:
    name, _, value = EVERY_TASK.partition("=")
    return parse_qs(query).get(name) == [value]


def wants_page(head: Head) -> bool:
    """Return whether the client accepts HTML, as browsers do."""
    return any("text/html" in value for value in head.values("accept"))


def refusal_page(error: HttpError) -> HttpResponse:
    """Return the page for an error."""
    title = HTTPStatus(error.status).phrase
    body = element("main", element("section", element("h1", title), element("p", error.message), id="failure"))
    return Document().response(error.status, title, body, headers=error.headers)

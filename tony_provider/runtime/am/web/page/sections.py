"""The sections of the page, one function each. A section that has nothing to say is empty, and does not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from tony_provider.runtime.am.web.page.curves import CoarseCurve
from tony_provider.runtime.am.web.page.html import Html, element, join
from tony_provider.runtime.am.web.page.job_view import JobView, ProcessView, TaskView, Tone
from tony_provider.runtime.am.web.page.measures import MEASURES, Measure, percentage
from tony_provider.runtime.am.web.page.sparkline import sparkline
from tony_provider.runtime.quantities import number, size

Section = Callable[[JobView], Html]
Column = tuple[str, Optional[str], Callable[[TaskView], str]]  # title, class, a task's cell

EVERY_TASK = "tasks=all"  # of the query: all rows, however many


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
    return _lines("Warnings", view.warnings)


def troubles(view: JobView) -> Html:
    """Whom the master cannot reach just now. The page itself is up to date all the same."""
    return _lines("Out of reach", view.troubles)


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
    """Below its task's row, of which it has some cells."""
    shown = {"Task": process.name, "Step": process.step, "Steps/s": process.speed}
    shown.update({"Memory": process.memory, "CPU": process.cpu})
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


def _memory(task: TaskView) -> Html:
    return _with_curve(task.memory, task.memory_curve, f"Memory of {task.name}", size)


def _cpu(task: TaskView) -> Html:
    return _with_curve(task.cpu, task.cpu_curve, f"CPU of {task.name}", percentage)


def _measured(measure: Measure) -> Callable[[TaskView], Html]:
    def cell(task: TaskView) -> Html:
        text, curve = task.use.get(measure.title, ("", None))
        return _with_curve(text, curve, f"{measure.name} by {task.name}", measure.write)

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
    ("Memory", _NUMBER, _memory),
    ("CPU", _NUMBER, _cpu),
)
_AFTER_MEASURES: Sequence[Column] = (
    ("Heartbeat", _NUMBER, _heartbeat),
    ("Node", None, _node),
    ("Container", _NUMBER, _container),
    ("Starts", _NUMBER, _text("starts")),
)
_EXIT: Column = ("Exit", None, _text("exit"))


def _columns(tasks: Sequence[TaskView]) -> Sequence[Column]:
    """With one for each measure of which anything is known, and for exits once there is one."""
    measured = [(each.title, _NUMBER, _measured(each)) for each in MEASURES if any(each.title in t.use for t in tasks)]
    ended = [_EXIT] if any(task.exit for task in tasks) else []
    return [*_COLUMNS, *measured, *_AFTER_MEASURES, *ended]


def _badge(text: str, tone: Tone) -> Html:
    return element("b", text, class_=f"badge {tone.value}")


def _lines(title: str, lines: Sequence[str]) -> Html:
    return join(element("h2", title), element("ul", *(element("li", line) for line in lines))) if lines else Html()


def _list(pairs: Sequence[tuple[str, str]]) -> Html:
    items = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *items)

"""Show a job as a table in the terminal: its state, progress and tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tony_provider.cli.printing import as_text
from tony_provider.cluster.base import Application
from tony_provider.runtime.clock import moment
from tony_provider.runtime.protocol.status import JobStatus, ProcessStatus, TaskProgress, TaskStatus
from tony_provider.runtime.quantities import count, number, size, span, steps
from tony_provider.watching.progress_log import MAX_ROWS, progress_line

_COLUMNS = ("task", "state", "node", "start", "step", "steps/s", "memory", "heard of")
_COLOURS = {
    "RUNNING": "green",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "KILLED": "red",
    "LOST": "red",
    "SUSPENDED": "yellow",
}


def job_table(
    application_id: str,
    application: Application | None,
    status: JobStatus | None,
    directory: str | None,
    troubles: Sequence[str] = (),
    checkpoints: Sequence[str] = (),
) -> RenderableType:
    """Return a job's state, progress and tasks, to be printed.

    ``troubles`` explain why the table is not up to date. ``checkpoints`` are the lines of the kept checkpoints.
    """
    facts = _named(application_id, application, status, directory)
    facts += [("checkpoint", as_text(each)) for each in checkpoints]
    parts: list[RenderableType] = [_facts(facts)]
    parts += [as_text(trouble, "yellow") for trouble in troubles]
    if status is not None and status.tasks:
        if status.total_steps and not status.state.is_final:
            bar = Table.grid()  # the bar alone does not end its line
            bar.add_row(ProgressBar(total=status.total_steps, completed=status.step or 0, width=60))
            parts.append(bar)
        parts.append(_tasks(status))
    return Group(*parts)


def _facts(facts: Sequence[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # so that users can copy paths
    for name, value in facts:
        grid.add_row(as_text(name, "bold"), value)
    return grid


def _named(
    application_id: str, application: Application | None, status: JobStatus | None, directory: str | None
) -> list[tuple[str, Text]]:
    facts = [("application", as_text(application_id))]
    if application is not None:
        where = f" in queue {application.queue}" if application.queue else ""
        facts.append(("on the cluster", _coloured(application.state.value, f"{where}, as {application.user}")))
    else:
        facts.append(("on the cluster", as_text("not known (any more)")))
    if status is not None:
        facts.append(("job", _coloured(status.state.value, f": {status.message}" if status.message else "")))
        if status.step is not None:
            facts.append(("progress", as_text(progress_line(status))))
        if status.restarts:
            facts.append(("restarts", as_text(str(status.restarts))))
        if status.failure is not None:
            facts.append(("failure", as_text(status.failure.message, "red")))
        if not status.state.is_final:
            facts.append(("as of", as_text(moment(status.updated_ms))))
        facts += [("out of reach", as_text(each, "yellow")) for each in status.troubles]
        facts += [("warning", as_text(each, "yellow")) for each in status.warnings]
        if status.export is not None:
            facts.append(("export", as_text(f"{status.export.label}: {status.export.uri}")))
        if status.export_request is not None and not status.state.is_final:
            facts.append(("export", as_text(f"asked for at {moment(status.export_request.since_ms)}")))
        if status.model_dir:
            facts.append(("model", as_text(status.model_dir)))
        facts += [(f"input {each.name}", as_text(each.label)) for each in status.inputs]
        for each in status.outputs:
            if each.files is not None:
                amount = f"{count(each.files, 'file')}, {size(each.bytes or 0)}"
                facts.append((f"output {each.name}", as_text(f"{each.uri} ({amount})")))
    elif application is not None and application.diagnostics:
        facts.append(("diagnostics", as_text(application.diagnostics)))
    if application is not None and application.tracking_url:
        facts.append(("page", as_text(application.tracking_url)))
    if directory is not None:
        facts.append(("directory", as_text(directory)))
    return facts


def _tasks(status: JobStatus) -> Table:
    table = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for task in status.tasks[:MAX_ROWS]:
        table.add_row(*_row(task, status.state.is_final))
        for process in task.further:
            table.add_row(*_process_row(process))
    if len(status.tasks) > MAX_ROWS:
        table.add_row(as_text(f"… {len(status.tasks) - MAX_ROWS} more"))
    return table


def _row(task: TaskStatus, over: bool) -> tuple[Text, ...]:
    progress = task.progress
    heard = "" if over or not task.heartbeat_ms else f"{span(time.time() - task.heartbeat_ms / 1000)} ago"
    return (
        as_text(task.name),
        _coloured(task.state.value, ""),
        as_text(task.node or ""),
        as_text(str(task.start or "")),
        *_figures(progress, None if over else task.rss_bytes),
        as_text(heard),
    )


def _process_row(process: ProcessStatus) -> tuple[Text, ...]:
    """Return the row of a process, which follows its task's row."""
    empty = Text()
    return (as_text(process.name), empty, empty, empty, *_figures(process.progress, process.rss_bytes), empty)


def _figures(progress: TaskProgress | None, rss_bytes: int | None) -> tuple[Text, Text, Text]:
    """Return steps, steps per second and memory."""
    return (
        as_text(steps(progress.step) if progress else ""),
        as_text(number(progress.steps_per_second) if progress and progress.steps_per_second is not None else ""),
        as_text(size(rss_bytes) if rss_bytes else ""),
    )


def _coloured(state: str, more: str) -> Text:
    return Text.assemble(as_text(state, _COLOURS.get(state, "")), as_text(more))

"""The commands ``airflow tony status`` and ``airflow tony list``.

The status includes the reasons why the shown state may be outdated.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tony_provider.cli.command import (
    NotFound,
    Row,
    as_text,
    command,
    expect_directory,
    hook_of,
    iso_time,
    job_of,
    print_rows,
    print_whole,
    say,
)
from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.cluster.interface import Application, ApplicationFilter, ApplicationState
from tony_provider.cluster.training.checkpoint_chains import KeptCheckpoint
from tony_provider.cluster.training.results import date_of_run, tag_of
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.common.quantities import count, number, size, span, steps, steps_and_percent
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.protocol.limits import STATUS_STALE
from tony_provider.runtime.protocol.metrics import IN_TASK_TABLES
from tony_provider.runtime.protocol.status import JobState, JobStatus, ProcessStatus, TaskStatus
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import Observation, UnansweredCalls, observe_status, status_of_master
from tony_provider.watching.progress_log import MAX_ROWS, ReachabilityLog, progress_line


@attrs.frozen
class JobSnapshot:
    """The fetched state of a job: its application, its status, and the reasons why they may be outdated."""

    application_id: str
    application: Application | None
    status: JobStatus | None
    directory: str | None  # URI; None if the staging directory has no files of the job, or cannot be read
    troubles: list[str]
    checkpoints: list[KeptCheckpoint] = attrs.field(factory=list)  # checkpoints of the job's chain, the newest first
    error: Exception | None = None  # why the status is unknown; None if it is known


def job_snapshot(hook: TonyHook, args: Namespace) -> JobSnapshot:
    """Fetch the state of the application that the command line names.

    Raises NotFound and ClusterError. Raises StorageError if the store does not answer and the cluster does not know the
    application.
    """
    job, seen = _observe(hook, args)
    if seen.unreadable:
        raise seen.unreadable
    old = list(_old(seen))
    if (old or seen.outage) and seen.application and seen.application.state is ApplicationState.RUNNING:
        seen = attrs.evolve(seen, master=status_of_master(job))
    silence = ReachabilityLog(UnansweredCalls(), lambda _: None)
    silence.look(seen)
    checkpoints, unknown = _checkpoints(job)
    return JobSnapshot(
        application_id=job.application_id,
        application=seen.application,
        status=seen.newest,
        directory=job.directory if job.identity else None,
        troubles=[*silence.lines, *old, *_answer_of_master(seen), *unknown],
        checkpoints=checkpoints,
        error=seen.outage if seen.newest is None else None,
    )


def _observe(hook: TonyHook, args: Namespace) -> tuple[TonyJob, Observation]:
    """Return the job and its state, from the cluster alone if the store does not answer."""
    try:
        job, application = job_of(hook, args)
    except StorageError as error:
        application = hook.application(args.application_id) if args.application_id else None
        if application is None:
            raise
        return TonyJob(hook, application.id, None), Observation(application, outages=(error,))
    return job, observe_status(job, application)


def _checkpoints(job: TonyJob) -> tuple[list[KeptCheckpoint], list[str]]:
    """Return the checkpoints of the job's chain, and the reason if they are unknown."""
    if job.identity is None:
        return [], []
    try:
        return job.checkpoints(), []
    except (StorageError, RecordUnreadable) as error:
        return [], [f"The checkpoints are unknown: {error}"]


def _old(seen: Observation) -> Iterator[str]:
    """Yield a line if the status is old by the clock of this machine, which may differ from the master's clock."""
    status, application = seen.status, seen.application
    if status is None or application is None or application.state is not ApplicationState.RUNNING:
        return
    age = time.time() - status.updated_ms / 1000
    if abs(age) > STATUS_STALE:
        when = f"{span(age)} ago" if age > 0 else f"{span(-age)} ahead"
        yield f"The job's status on the store dates from {moment(status.updated_ms)}, {when} by this machine's clock"


def _answer_of_master(seen: Observation) -> Iterator[str]:
    if isinstance(seen.master, JobStatus):
        yield "The status shown here comes from the application master itself"
    elif isinstance(seen.master, ClusterError):
        yield f"The application master does not answer either: {seen.master}"


_METRICS = tuple(metric.title.lower() for metric in IN_TASK_TABLES)
_COLUMNS = ("task", "state", "node", "start", "step", "steps/s", *_METRICS, "heartbeat")
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
    """Return a printable table with a job's state, progress and tasks.

    ``troubles`` explain why the table is not up to date. ``checkpoints`` has one line for each kept checkpoint.
    """
    facts = _named(application_id, application, status, directory)
    facts += [("checkpoint", as_text(each)) for each in checkpoints]
    parts: list[RenderableType] = [_facts(facts)]
    parts += [as_text(trouble, "yellow") for trouble in troubles]
    if status and status.tasks:
        if status.total_steps and not status.state.is_final:
            bar = Table.grid()  # without a table, rich prints no line break after a bar
            bar.add_row(ProgressBar(total=status.total_steps, completed=status.step or 0, width=60))
            parts.append(bar)
        parts.append(_tasks(status, over=status.state.is_final or application is None or application.is_final))
    return Group(*parts)


def _facts(facts: Sequence[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # wrap paths instead of cutting them, so that users can copy them
    for name, value in facts:
        grid.add_row(as_text(name, "bold"), value)
    return grid


def _named(
    application_id: str, application: Application | None, status: JobStatus | None, directory: str | None
) -> list[tuple[str, Text]]:
    facts = [("application", as_text(application_id))]
    if application:
        where = f" in queue {application.queue}" if application.queue else ""
        facts.append(("on the cluster", _coloured(application.state.value, f"{where}, as {application.user}")))
    else:
        facts.append(("on the cluster", as_text("not listed (any more)")))
    if status:
        facts.append(("job", _coloured(status.state.value, f": {status.message}" if status.message else "")))
        if status.step is not None:
            facts.append(("progress", as_text(progress_line(status))))
        if status.restarts:
            facts.append(("restarts", as_text(str(status.restarts))))
        if status.failure:
            facts.append(("failure", as_text(status.failure.full_message, "red")))
        if not status.state.is_final:
            facts.append(("as of", as_text(moment(status.updated_ms))))
        facts += [("unreachable", as_text(each, "yellow")) for each in status.troubles]
        facts += [("warning", as_text(each, "yellow")) for each in status.warnings]
        if status.export:
            facts.append(("export", as_text(f"{status.export.label}: {status.export.uri}")))
        if status.export_request and not status.state.is_final:
            facts.append(("export", as_text(f"requested at {moment(status.export_request.since_ms)}")))
        if status.model_dir:
            facts.append(("model", as_text(status.model_dir)))
        facts += [(f"input {each.name}", as_text(each.label)) for each in status.inputs]
        for each in status.outputs:
            if each.files is not None:
                amount = f"{count(each.files, 'file')}, {size(each.bytes or 0)}"
                facts.append((f"output {each.name}", as_text(f"{each.uri} ({amount})")))
    elif application and application.diagnostics:
        facts.append(("diagnostics", as_text(application.diagnostics)))
    if application and application.tracking_url:
        facts.append(("page", as_text(application.tracking_url)))
    if directory is not None:
        facts.append(("directory", as_text(directory)))
    return facts


def _tasks(status: JobStatus, *, over: bool) -> Table:
    table = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for task in status.tasks[:MAX_ROWS]:
        table.add_row(*_row(task, over))
        for process in task.further:
            table.add_row(*_process_row(process))
    if len(status.tasks) > MAX_ROWS:
        table.add_row(as_text(f"… {len(status.tasks) - MAX_ROWS} more"))
    return table


def _row(task: TaskStatus, over: bool) -> tuple[Text, ...]:
    heard = "" if over or not task.heartbeat_ms else f"{span(time.time() - task.heartbeat_ms / 1000)} ago"
    return (
        as_text(task.name),
        _coloured(task.state.value, ""),
        as_text(task.node or ""),
        as_text(str(task.start or "")),
        *_figures(task, is_over=over),
        as_text(heard),
    )


def _process_row(process: ProcessStatus) -> tuple[Text, ...]:
    """Return the row of a further process, which is shown below the row of its task."""
    empty = Text()
    return (as_text(process.name), empty, empty, empty, *_figures(process), empty)


def _figures(task: TaskStatus | ProcessStatus, *, is_over: bool = False) -> tuple[Text, ...]:
    """Return the cells for steps, steps per second and metrics."""
    progress = task.progress
    return (
        as_text(steps(progress.step) if progress else ""),
        as_text(number(progress.steps_per_second) if progress and progress.steps_per_second is not None else ""),
        *(as_text("" if is_over else metric.text(getattr(task, metric.name, None))) for metric in IN_TASK_TABLES),
    )


def _coloured(state: str, more: str) -> Text:
    return Text.assemble(as_text(state, _COLOURS.get(state, "")), as_text(more))


@command
def status(args: Namespace) -> None:
    """Show the state of a job; with ``--watch`` until it ends."""
    with hook_of(args) as hook:
        if args.story:
            print_rows(_story(*job_of(hook, args), args.story), args.output, whole=True)
            return
        if args.watch:
            from tony_provider.cli.wait_for_job import wait_for_job  # imported only when needed

            wait_for_job(expect_directory(job_of(hook, args)[0]))
            return
        seen = job_snapshot(hook, args)
    if args.output == "table":
        checkpoints = [each.line for each in seen.checkpoints]
        table = job_table(
            seen.application_id, seen.application, seen.status, seen.directory, seen.troubles, checkpoints
        )
        print_whole(table)
    elif args.output == "plain":
        print_rows(_task_rows(seen.status), "plain")
    else:
        print_rows([_whole(seen)], args.output)
    if seen.error:
        raise seen.error


def _story(job: TonyJob, application: Application | None, task: str) -> list[Row]:
    """Return a task's state transitions if its job runs, or its events if the job has ended. Raises NotFound."""
    if application and not application.is_final:
        story = job.story(task)
        return [
            _story_row(each.time_ms, each.subject, f"{each.before} -> {each.after}", each.why, each.event)
            for each in story.transitions
        ]
    history = expect_directory(job).history()
    rows = [
        _story_row(each.get("time_ms"), task, str(each.get("event", "")), str(each.get("message", "")))
        for each in history.events
        if each.get("task") == task
    ]
    if not rows:
        more = f": {'; '.join(history.missing)}" if history.missing else ""
        raise NotFound(f"{job} has no events of {task}{more}")
    return rows


def _story_row(time_ms: object, subject: str, change: str, why: str, event: str = "") -> Row:
    when = iso_time(time_ms) if isinstance(time_ms, int) else None
    return {"time": when, "subject": subject, "change": change, "reason": why or None, "event": event or None}


def _task_rows(job_status: JobStatus | None) -> list[Row]:
    """Return one row per task, for scripts that read columns."""
    return [
        {
            "task": task.name,
            "state": task.state.value,
            "node": task.node,
            "start": task.start,
            "step": task.progress.step if task.progress else None,
        }
        for task in (job_status.tasks if job_status else [])
    ]


def _whole(seen: JobSnapshot) -> dict[str, Any]:
    return {
        "application_id": seen.application_id,
        "application": to_plain(seen.application) if seen.application else None,
        "job": to_plain(seen.status) if seen.status else None,
        "directory": seen.directory,
        "checkpoints": [attrs.asdict(each) for each in seen.checkpoints],
        "troubles": seen.troubles,
    }


@command
def list_applications(args: Namespace) -> None:
    """List live applications, ended ones (``--ended``) or both (``--all``), the newest first."""
    live = None if args.all else not args.ended
    with hook_of(args) as hook:
        found = hook.get_conn().applications(ApplicationFilter(live=live, user=args.user))
        listed = [each for each in found if args.queue in (None, each.queue, _last(each))]
        known = _ask_masters(hook, [each for each in listed if each.state is ApplicationState.RUNNING])
    if not listed and args.output == "table":
        say(_nothing(args))
        return
    print_rows([_row_of(each, known.get(each.id)) for each in listed], args.output, table=_cells, whole=True)
    if unknown := [f"{name}: {each or 'no answer'}" for name, each in known.items() if not isinstance(each, JobStatus)]:
        missing = f"The progress of {count(len(unknown), 'job')} is unavailable, for example {unknown[0]}"
        print(printable(missing), file=sys.stderr)  # noqa: T201


def _nothing(args: Namespace) -> str:
    whose = (f" of {args.user}" if args.user else "") + (f" in queue {args.queue}" if args.queue else "")
    if args.ended or args.all:
        return f"The cluster has no record of a job{whose}"
    return f"No job{whose} is running or waiting; --ended lists those that have ended"


def _last(application: Application) -> str:
    """Return the last part of the queue's path: some YARN versions report the whole path."""
    return application.queue.rpartition(".")[2]


_ASK_SECONDS = 10.0  # time limit for the answers of all masters
_THREADS = 8

Answer = JobStatus | ClusterError | None  # None if the master has not answered yet


def _ask_masters(hook: TonyHook, running: Sequence[Application]) -> dict[str, Answer]:
    """Return the statuses of running jobs by application ID. The masters report them, so the store is not read."""
    known: dict[str, Answer] = {each.id: None for each in running}
    rest = iter(list(known))

    def ask() -> None:
        for application_id in rest:
            known[application_id] = status_of_master(TonyJob(hook, application_id, None))

    run_in_threads([ask] * _THREADS, _ASK_SECONDS, "statuses")
    return known


def _row_of(application: Application, answer: Answer) -> Row:
    status = answer if isinstance(answer, JobStatus) else JobStatus(application.id, "", JobState.WAITING)
    final = application.final_status if application.is_final else None
    return {
        "application_id": application.id,
        "name": application.name,
        **{key: status.labels.get(key) for key in ("dag_id", "task_id", "run_id")},
        "map_index": int(index) if (index := status.labels.get("map_index", "")).isdecimal() else None,
        "user": application.user,
        "queue": application.queue or None,
        "state": (status if status.state is JobState.SUSPENDED else application).state.value,
        "final_status": final and final.value,
        "step": status.step,
        "total_steps": status.total_steps,
        "started": iso_time(application.started_ms),
        "ended": iso_time(application.finished_ms),
        "tag": tag_of(application),
    }


def _cells(row: Row) -> Row:
    """Return the columns of the table, which fits a terminal of 160 columns."""
    index = f"[{row['map_index']}]" if row["map_index"] is not None else ""
    return {
        "application_id": row["application_id"],
        "job": f"{row['dag_id']}.{row['task_id']}{index}" if row["dag_id"] else row["name"],
        "run": date_of_run(row["run_id"] or ""),
        "user": row["user"],
        "queue": row["queue"],
        "state": row["final_status"] or row["state"],
        "progress": "" if row["step"] is None else steps_and_percent(row["step"], row["total_steps"]),
        **{f"{time} (UTC)": (row[time] or "")[:16] for time in ("started", "ended")},
    }

"""Common parts of the commands: error handling, output, and the connection and applications that a command names.

Tables fit the width of a terminal, if there is one. Output to a file or pipe is never cut.
"""

from __future__ import annotations

import functools
import getpass
import signal
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from airflow.cli.simple_table import AirflowConsole
from airflow.utils.cli import suppress_logs_and_warning
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application, ApplicationFilter
from tony_provider.compat import AirflowTooOld
from tony_provider.configuration import ConfigurationProblem
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.connection import connections_of_database
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.contract import TAG_PREFIX
from tony_provider.runtime.common.quantities import some
from tony_provider.runtime.common.text import one_line, printable
from tony_provider.runtime.jobspec.units import UnitError, parse_duration, parse_memory
from tony_provider.runtime.storage.errors import StorageError

_WIDE = 1 << 14  # characters; width of output to a file or pipe, wider than any path

_MEBIBYTE = 1 << 20


Row = Mapping[str, Any]


def print_rows(rows: Sequence[Row], output: str, *, table: Callable[[Row], Row] = dict, whole: bool = False) -> None:
    """Print rows in the format ``output``.

    The keys of ``rows`` are the names in JSON and YAML, which keep numbers, and null for missing values.

    :param table: converts a row for a table, which omits empty columns.
    :param whole: let a terminal wrap cells such as paths, and cut none.
    """
    console = AirflowConsole(emoji=False)
    if output in ("json", "yaml"):  # without Airflow's ``print_as``, which turns numbers into text
        getattr(console, f"print_as_{output}")(list(rows))
    elif output == "plain":
        console.print_as(
            [{key: "-" if value is None else _cell(value) for key, value in row.items()} for row in rows], output
        )
    else:
        if whole or not console.is_terminal:
            console.width = _WIDE
        cells = [{key: escape(_cell(value)) for key, value in table(row).items()} for row in rows]  # may contain markup
        used = [key for row in cells[:1] for key in row if any(each[key] for each in cells)]
        console.print_as([{key: row[key] for key in used} for row in cells], output)


def _cell(value: object) -> str:
    return "" if value is None else one_line(str(value))


def as_text(text: str, style: str = "") -> Text:
    """Convert untrusted text for rich: without markup, and without control sequences."""
    return Text(printable(text), style=style)


def say(text: str) -> None:
    """Print output of a command that is not a table. The text may contain untrusted names."""
    print(printable(text), flush=True)  # noqa: T201 - output of the command


def print_whole(renderable: RenderableType) -> None:
    """Print an object of rich, such as the table of a job. Its lines are not cut."""
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(renderable)


def iso_time(epoch_ms: int | None) -> str | None:
    """Format a time for programs. Return None if it is unknown."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds") if epoch_ms else None


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a duration such as ``30d``, ``12h`` or ``90s``.

    If ``text`` is no duration, exit with a message that names ``option``, the command's option.
    """
    try:
        return float(parse_duration(text))
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error


def bytes_of(option: str, text: str) -> int:
    """Return the bytes of an amount of memory such as ``2GiB``. For an invalid amount, exit like ``seconds_of``."""
    try:
        return parse_memory(text) * _MEBIBYTE
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Yield an event. Ctrl-C and terminating signals set the event, and do not interrupt the cleanup."""
    over = threading.Event()
    before = {each: signal.signal(each, lambda *_: over.set()) for each in _ENDING}
    try:
        yield over
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


Command = Callable[[Namespace], None]

_INTERRUPTED = 130  # exit code that shells return after Ctrl-C


def command(function: Command) -> Command:
    """Decorator for the function of a command: hides log lines and turns known errors into a message.

    Users see Airflow's log lines only with ``--verbose``. For errors that a user can fix, one message replaces the
    traceback, and the exit code is 1.
    """

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        try:
            with connections_of_database():
                function(args)
        except (ClusterError, StorageError, TonySpecError, ConfigurationProblem, AirflowTooOld) as error:
            sys.stdout.flush()
            raise SystemExit(printable(str(error))) from error  # the message may quote names and text of a job
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the output, such as head, has ended
            sys.stdout = None
            raise SystemExit(1) from None

    return suppress_logs_and_warning(run)


class NotFound(ClusterError):  # noqa: N818 - named for what is wrong
    """The application that a command names does not exist, or the staging directory has no files of it."""


def hook_of(args: Namespace) -> TonyHook:
    """Return the hook for the connection that the command line names."""
    return TonyHook(args.conn_id, args.proxy_user)


NamedJob = tuple[TonyJob, Application | None]
"""A job, and its application as the cluster reports it, or None if the cluster does not know the job (anymore)."""


_NAMES = "its application ID, --tag, or --dag-id and --task-id"


def job_of(hook: TonyHook, args: Namespace) -> NamedJob:
    """Return the only job that the arguments name, see ``jobs_of``. Raises NotFound."""
    named = jobs_of(hook, args)
    if len(named) != 1:
        raise NotFound(f"name one job: by {_NAMES}")
    return named[0]


def names_a_job(args: Namespace) -> bool:
    """Return whether the arguments name a job, even incompletely."""
    return bool(args.application_id or args.tag) or _names_a_task(args)


def _names_a_task(args: Namespace) -> bool:
    return any((args.dag_id, args.task_id, args.run_id, args.try_number, args.map_index is not None))


def jobs_of(hook: TonyHook, args: Namespace) -> list[NamedJob]:
    """Return all jobs that the arguments name: by application IDs, by tags, or by DAG, task, runs, map index and try.

    Raises NotFound if the arguments name no job, an unknown job, or a task that has several jobs in the run.
    """
    if not names_a_job(args):
        raise NotFound(f"name a job: by {_NAMES}")
    ids = [args.application_id] if isinstance(args.application_id, str) else args.application_id or []
    found = [_find(hook, each, application_id=each) for each in ids]
    found += [_of_tag(hook, each) for each in args.tag or []]
    if _names_a_task(args):
        if not (args.dag_id and args.task_id):
            raise NotFound(
                "name the job of a task by both --dag-id and --task-id; --run-id, --map-index and --try need both"
            )
        found += [_of_task(hook, args, run_id) for run_id in args.run_id or [""]]
    return found


def _find(hook: TonyHook, what: str, **which: str) -> NamedJob:
    found = hook.application_ref(**which)
    if found is None:
        raise NotFound(
            f"neither the cluster nor {hook.layout.root} knows of {what}; `airflow tony list --all` lists the "
            "applications that the cluster knows"
        )
    return TonyJob(hook, found.application_id, found.identity), found.application


def _of_tag(hook: TonyHook, tag: str) -> NamedJob:
    """Return the newest job with this tag. A tag that the jobs set themselves may select only one running job."""
    running = [] if tag.startswith(TAG_PREFIX) else hook.get_conn().applications(ApplicationFilter(live=True, tag=tag))
    if len(running) > 1:
        raise NotFound(f"name one of the running jobs with the tag {tag}: {some(each.id for each in running)}")
    return _find(hook, tag, tag=tag)


def _of_task(hook: TonyHook, args: Namespace, run_id: str) -> NamedJob:
    """Return the job of a task in this run, or in the run with the newest job if ``run_id`` is empty."""
    task = {"dag_id": args.dag_id, "task_id": args.task_id}
    more = {"run_id": run_id or None, "map_index": args.map_index, "try_number": args.try_number}
    given = {key: str(value) for key, value in more.items() if value is not None}
    found = hook.applications_of_task({**task, **given})
    mine = [each for each in found if each.run_id == found[0].run_id]
    if len(mine) == 1:
        return _find(hook, mine[0].id, application_id=mine[0].id)
    known = some(map(str, mine or hook.applications_of_task(task)), 20)
    problem = f"name one of the jobs {known}" if mine else f"no such job; known jobs of this task: {known or 'none'}"
    raise NotFound(f"the task {args.task_id} of the DAG {args.dag_id} in {hook.layout.root}: {problem}")


@contextmanager
def running_job(args: Namespace, advice: str = "") -> Iterator[TonyJob]:
    """Open the connection of the arguments, and yield the running job that the arguments name. Raises NotFound.

    The job may be from another connection, whose staging directory has its files. If the job has ended, exit with a
    message. ``advice`` is the end of this message, a format string for the application ID.
    """
    with hook_of(args) as hook:
        job, application = job_of(hook, args)
        if not application or application.is_final:
            raise SystemExit(f"{job} has already ended{advice.format(job)}")
        yield job


def reason_of(args: Namespace) -> str:
    """Return the reason in the arguments, or a default reason with the user and the machine of the command."""
    return args.reason or f"requested by {getpass.getuser()} on {socket.gethostname()}"


def expect_directory(job: TonyJob) -> TonyJob:
    """Return the job. Raises NotFound if the staging directory has no files of it."""
    if job.identity is None:
        raise NotFound(
            f"{job} has no directory in {job.hook.layout.root}; check that --conn-id names the connection with which "
            "the job was submitted"
        )
    return job

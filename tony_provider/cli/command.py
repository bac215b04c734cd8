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
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow.cli.simple_table import AirflowConsole
from airflow.utils.cli import suppress_logs_and_warning
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application
from tony_provider.compat import AirflowTooOld
from tony_provider.configuration import ConfigurationProblem
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.connection import connections_of_database
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.common.text import one_line, printable
from tony_provider.runtime.jobspec.units import UnitError, parse_duration, parse_memory
from tony_provider.runtime.storage.errors import StorageError

_WIDE = 1 << 14  # characters; width of output to a file or pipe, wider than any path

_MEBIBYTE = 1 << 20


def print_rows(rows: Sequence[Mapping[str, object]], output: str, *, whole: bool = False) -> None:
    """Print rows in the format ``output``. With ``whole``, a terminal wraps cells such as paths, and cuts none."""
    console = AirflowConsole(emoji=False)
    if output == "table" and (whole or not console.is_terminal):  # only tables: JSON would be padded with blanks
        console.width = _WIDE
    if output not in ("json", "yaml"):  # those formats escape control characters
        rows = [{key: _cell(value, output) for key, value in row.items()} for row in rows]
    console.print_as(rows, output)


def _cell(value: object, output: str) -> object:
    if not isinstance(value, str):
        return value
    return escape(one_line(value)) if output == "table" else one_line(value)  # rich parses cells as markup


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


def age_of(epoch_ms: int) -> str:
    """Format the time since ``epoch_ms``."""
    return span(time.time() - epoch_ms / 1000)


def utc_time(epoch_ms: int | None) -> str:
    """Format a time in UTC, which the column's title states. Return an empty string for None."""
    return clock.moment(epoch_ms).removesuffix(" UTC") if epoch_ms else ""


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


def job_of(hook: TonyHook, args: Namespace) -> NamedJob:
    """Return the job that the arguments name, by application ID or by the tag of a training. Raises NotFound."""
    application_id, tag = args.application_id or "", getattr(args, "tag", None) or ""
    if bool(application_id) == bool(tag):
        raise NotFound("name one application: by its id, or by its training's tag with --tag")
    return find_job(hook, application_id=application_id, tag=tag)


def find_job(hook: TonyHook, *, application_id: str = "", tag: str = "", what: str = "") -> NamedJob:
    """Return the job with this ID or tag. The error message names the job by ``what``, if given. Raises NotFound."""
    found = hook.application_ref(application_id=application_id, tag=tag)
    if found is None:
        raise NotFound(
            f"neither the cluster nor {hook.layout.root} knows of {what or application_id or tag}; `airflow tony list "
            "--all` lists the applications that the cluster knows"
        )
    return TonyJob(hook, found.application_id, found.identity), found.application


@contextmanager
def running_job(args: Namespace, advice: str = "") -> Iterator[TonyJob]:
    """Open the connection of the arguments, and yield the running job that the arguments name. Raises NotFound.

    The job may be from another connection, whose staging directory has its files. If the job has ended, exit with a
    message. ``advice`` is the end of this message, a format string for the application ID.
    """
    with hook_of(args) as hook:
        job, application = job_of(hook, args)
        if application is None or application.is_final:
            raise SystemExit(f"{job} has already ended{advice.format(job)}")
        yield job


def reason_of(args: Namespace) -> str:
    """Return the reason in the arguments, or a default reason with the user and the machine of the command."""
    return args.reason or f"requested by {getpass.getuser()} on {socket.gethostname()}"


def jobs_of(hook: TonyHook, args: Namespace) -> list[TonyJob]:
    """Return all jobs that the arguments name: by application IDs, by tags, or by DAG, task and runs.

    Raises NotFound if a job is unknown, or if the staging directory has no files of it.
    """
    tags = [(tag, tag) for tag in args.tag or []]
    training = (args.dag_id, args.task_id, args.run_id)
    if any(training):
        if not all(training):
            raise NotFound("name a training by all of --dag-id, --task-id and --run-id")
        for run_id in args.run_id:
            which = {"dag_id": args.dag_id, "task_id": args.task_id, "run_id": run_id}
            tag = hook.identity(**which, map_index=args.map_index).tag
            tags.append((tag, f"the task {args.task_id} of {args.dag_id} in the run {run_id}"))
    if not args.application_ids and not tags:
        raise NotFound("name applications: by their ids, by --tag, or by --dag-id, --task-id and --run-id")
    found = [find_job(hook, application_id=each) for each in args.application_ids]
    found += [find_job(hook, tag=tag, what=what) for tag, what in tags]
    return [expect_directory(job) for job, _ in found]


def expect_directory(job: TonyJob) -> TonyJob:
    """Return the job. Raises NotFound if the staging directory has no files of it."""
    if job.identity is None:
        raise NotFound(
            f"{job} has no directory in {job.hook.layout.root}; check that --conn-id names the connection with which "
            "the job was submitted"
        )
    return job

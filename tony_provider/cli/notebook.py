"""``airflow tony notebook``: run Jupyter as the task of a job, and connect to it.

The notebook has the environment and files of a job, which a job file or an earlier application defines.
"""

from __future__ import annotations

import http.client
import logging
import secrets
import shlex
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from tony_provider.cli.command import (
    NotFound,
    bytes_of,
    command,
    expect_directory,
    hook_of,
    job_of,
    names_a_job,
    say,
    seconds_of,
    until_interrupted,
)
from tony_provider.cli.job_file import (
    file_roots,
    overrides_of,
    read_job,
    search_path,
    secrets_from_environment,
    submission_labels,
    typed_files,
)
from tony_provider.cli.open_tunnel import expect_local_port, open_browser, port_in_use_message
from tony_provider.cli.wait_for_job import JobEndedBadly, watch_until_end
from tony_provider.cluster.errors import ClusterError, TunnelEnded
from tony_provider.cluster.interface import wait_for_end
from tony_provider.cluster.notebooks import TASK, TOKEN, NotebookRequest, notebook_job, secrets_left_out
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.task_tunnel import HOST, TaskTunnel
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.plan import ChainOrigin, Resume
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.outcome import failure
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.notebook.serving import NotebookOptions
from tony_provider.runtime.protocol.status import JobStatus, TaskState
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import Observation
from tony_provider.watching.termination import clean_up

log = logging.getLogger(__name__)


@attrs.frozen
class NotebookOrigin:
    """The job from which a notebook gets environment and files, and the checkpoint with which the notebook starts."""

    job: JobSpec
    overrides: Mapping[str, Any]  # overrides for the notebook's job
    search_path: Sequence[Path] = ()  # where to search for the job's files
    file_roots: Sequence[Path] = ()  # additional allowed directories of these files
    checkpoint: str | None = None  # URI of a checkpoint chain; the notebook receives the newest checkpoint
    news: Sequence[str] = ()  # messages for the user


def origin_of(hook: TonyHook, args: Namespace) -> NotebookOrigin | None:
    """Return the job and the checkpoint that the command line names, or None if it names neither.

    If the command line names both a job file and an application, the job comes from the file, and the checkpoint from
    the application's training. Raises NotFound, TonySpecError, SourceMissing, Unconfirmed.
    """
    overrides = overrides_of(args.set or [])
    origin = None
    if args.job:
        file = Namespace(job=args.job, param=args.param)  # the other arguments are for the notebook's job
        origin = NotebookOrigin(read_job(file, hook)[0], overrides, search_path(file), file_roots(args))
    elif args.param:
        raise NotFound("--param is for the parameters of a job's file: name the file")
    if not names_a_job(args):
        return origin
    job = expect_directory(job_of(hook, args)[0])
    news = []
    if origin is None:
        kept = job.job_for_rerun(confirmed=args.yes)
        origin = NotebookOrigin(kept.job, overrides, file_roots=typed_files(args))
        if kept.masked:
            news.append(f"Left out {', '.join(kept.masked)}, whose values are not stored: set them by --set env.NAME=…")
        if kept.left_out:
            news.append(
                f"Left out {', '.join(kept.left_out)}: the history names a file of this machine. Set your own by "
                "--set KEY=PATH"
            )
    so_far = job.newest_checkpoint()
    if so_far is None:
        news.append(f"{job} has no checkpoint yet: the notebook starts without a checkpoint")
        return attrs.evolve(origin, news=news)
    news.append(f"The newest checkpoint of {job}, now {so_far.newest.label}, will be in `checkpoint`")
    return attrs.evolve(origin, checkpoint=so_far.chain, news=news)


_LOOK = 1.0  # seconds between two polls of the job
_ASK = 0.5  # seconds between two requests to Jupyter during its start
_LOOK_FOR_WARNINGS = 30.0  # seconds between two polls for warnings while connected
_ANSWER_SECONDS = 10.0
_SERVER_SECONDS = 300.0  # time limit from the container's start; importing Jupyter from a slow disk takes long
_END_SECONDS = 60.0  # time limit for an application to end after its master has ended
_MOST_BYTES = 1 << 20  # maximum bytes of Jupyter's response


class Interrupted(Exception):  # noqa: N818 - says what happened
    """Ctrl-C, or a signal, ended the wait."""


class _Reached(Exception):  # noqa: N818 - says what happened
    """Raised to end the wait, because the container runs."""


@attrs.frozen
class NotebookConnection:
    """Connection to a submitted notebook, which may not run yet."""

    name: str
    job: TonyJob
    token: str = attrs.field(repr=False)
    _answers: threading.Event = attrs.field(factory=threading.Event, init=False)  # set after Jupyter's first answer

    def wait_for_container(self, over: threading.Event) -> None:
        """Wait until the container runs, and print the reasons for the wait.

        Raises Interrupted once ``over`` is set, and JobEndedBadly or TunnelEnded if the notebook ends before.
        """

        def show(seen: Observation | None, _: list[str]) -> None:
            if over.is_set():
                raise Interrupted
            tasks = seen.newest.tasks if seen and seen.newest else []
            if any(task.name == TASK and task.state is TaskState.RUNNING for task in tasks):
                raise _Reached

        try:
            watch_until_end(self.job, pause=_LOOK, say=say, show=show)
        except _Reached:
            return
        raise TunnelEnded(f"{self.job} has ended")

    def open(self, local_port: int, over: threading.Event) -> TaskTunnel:
        """Open a tunnel to the notebook. Stop waiting for it once ``over`` is set."""
        return self.job.tunnel(TASK, local_port=local_port, report=self._report, over=over)

    def _report(self, news: str) -> None:
        if self._answers.is_set():
            say(news)

    def wait_for_server(self, tunnel: TaskTunnel, over: threading.Event) -> str:
        """Wait until Jupyter answers, and return the address for a browser. Raises Interrupted, ClusterError."""
        deadline = time.monotonic() + _SERVER_SECONDS
        while (path := self._asked(tunnel.port)) is None:
            if over.wait(_ASK):
                raise Interrupted
            tunnel.wait(0)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Jupyter does not answer within {_SERVER_SECONDS:g} s; `airflow tony logs {self.job}` "
                    "shows its output"
                )
        self._answers.set()
        return f"http://{HOST}:{tunnel.port}{path}?token={self.token}"

    @contextmanager
    def reporting_warnings(self) -> Iterator[None]:
        """Print the job's warnings within this context, for example that changes are not copied to the store."""
        over = threading.Event()
        threading.Thread(target=self._report_warnings, args=(over,), name="warnings", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _report_warnings(self, over: threading.Event) -> None:
        told: Sequence[str] = []
        while not over.wait(_LOOK_FOR_WARNINGS):
            try:
                warnings = self.job.master_status().warnings
            except ClusterError:
                continue
            for each in warnings:
                if each not in told and not over.is_set():
                    say(f"Warning: {each}")
            told = warnings

    def _asked(self, port: int) -> str | None:
        """Return the path of Jupyter's start page, or None if Jupyter does not answer yet."""
        connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/", headers={"Authorization": f"token {self.token}"})
            answer = connection.getresponse()
            answer.read(_MOST_BYTES)
            return urlsplit(answer.headers.get("Location", "/")).path or "/"
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def ending(self, error: TunnelEnded) -> str:
        """Describe how the notebook has ended.

        Raises JobEndedBadly if the notebook failed, and ``error`` if the notebook still runs.
        """
        if wait_for_end(self.job.application, _END_SECONDS) is not None:
            raise error
        clean_up(self.job, log.warning)
        status = self.job.status()
        if problem := failure(self.job.application_id, self.job.application(), status):
            raise JobEndedBadly("\n".join([str(problem), *(status.warnings if status else [])]))
        returned = self._returned()
        why = str(returned.get("ended", "ended"))
        lost = _lost(returned, status)
        if not lost:
            return f"The notebook has {why}. Its work is kept: the same command opens it again"
        return "\n".join([f"The notebook has {why}. NOT all of its work is kept:", *(f"  - {each}" for each in lost)])

    def _returned(self) -> dict[str, Any]:
        """Return the result of the notebook's program, or an empty dictionary if the result is unreadable."""
        try:
            returned: Any = self.job.returned()
        except (ClusterError, StorageError):
            return {}
        return returned if isinstance(returned, dict) else {}


def _lost(returned: dict[str, Any], status: JobStatus | None) -> list[str]:
    """Return a line for work that the program did not save, and for saved work that was not copied to the store."""
    lost = [str(returned["not_kept"])] if returned.get("not_kept") else []
    newest = returned.get("kept")
    if status is not None and isinstance(newest, int):
        step = status.checkpoint_step
        if step is None or step < newest:
            lost += status.warnings or ["the last changes are not on the store"]
    return lost


_DAG_ID = "notebook"  # a notebook's identity has the DAG ID "notebook:USER"
_TASK_ID = "notebook"
_LIFETIME = 12 * 3600.0  # seconds, unless the command or the connection sets it
_SHORTEST = 60.0  # minimum seconds of a lifetime
_BEFORE_THE_END = 300.0  # the notebook saves its work and ends this many seconds before YARN's limit
_SHARE = 0.1  # _BEFORE_THE_END is at most this share of the lifetime
_PERIOD = 0.2  # seconds between two checks for the end


@command
def notebook(args: Namespace) -> None:
    """Open a notebook, and connect to it until Ctrl-C. After that, the notebook continues to run."""
    expect_local_port(args.local_port)
    with hook_of(args) as hook:
        origin = origin_of(hook, args)
        name = args.name or (origin.job.name if origin else "")
        if not name:
            raise NotFound(
                "name a job, JOB.tony.yaml, or an application by --of; --name alone finds only a notebook that runs"
            )
        found = _running(hook, name) or _started(hook, args, name, origin)
        if not args.detach:
            _lead(args, found)
            return
        _print_more(args, found, args.local_port, "Reconnecting waits until Jupyter answers.")


def _identity(hook: TonyHook, name: str) -> Identity:
    return hook.identity(dag_id=f"{_DAG_ID}:{hook.get_conn().user}", run_id=name, task_id=_TASK_ID)


def _running(hook: TonyHook, name: str) -> NotebookConnection | None:
    """Return the notebook with this name, or None if no such notebook runs or waits."""
    identity = _identity(hook, name)
    for application in hook.find(identity):
        job = hook.job(application.id, identity)
        token = job.notebook_token()
        if token is not None:
            say(f"The notebook {name!r} already exists: {job}")
            return NotebookConnection(name, job, token)
    return None


def _started(hook: TonyHook, args: Namespace, name: str, origin: NotebookOrigin | None) -> NotebookConnection:
    if origin is None:
        raise NotFound(f"no notebook {name!r} is running: also name the job to open the notebook again")
    hook.expect_servers()
    request = _request(hook, args, name, origin)
    token = request.secrets[TOKEN]
    job = hook.submit(request, before_submit=lambda new: new.keep_notebook_token(token))
    say(f"Submitted {job}, the notebook {name!r}")
    return NotebookConnection(name, job, token)


def _request(hook: TonyHook, args: Namespace, name: str, origin: NotebookOrigin) -> SubmissionRequest:
    """Return the notebook's submission request. Raises JobRejected, TonySpecError, SourceMissing."""
    given = secrets_from_environment(args.secret or [])
    lifetime = _lifetime(hook, args)
    wish = NotebookRequest(
        name=name,
        options=NotebookOptions(seconds_of("--idle", args.idle), _end(lifetime), bytes_of("--keep", args.keep)),
        lifetime=lifetime,
        task_type=args.task,
        queue=args.queue,
        secrets=frozenset(given),
    )
    try:
        job = notebook_job(origin.job, wish, origin.overrides)
    except SpecError as error:
        raise TonySpecError(f"the notebook's job: {error}") from error
    hook.expect_kernel(job, origin.search_path, origin.file_roots)
    for line in origin.news:
        say(line)
    if names := secrets_left_out(origin.job, wish):
        say(f"Left out the job's secrets {', '.join(names)}: set their values by --secret NAME")
    values = {**{each: given[each] for each in job.secrets if each in given}, TOKEN: secrets.token_urlsafe(32)}
    return SubmissionRequest(
        job,
        _identity(hook, name),
        values,
        submission_labels(name),
        origin.search_path,
        Resume.ALWAYS,
        ChainOrigin(warm_start=origin.checkpoint),
        overrides=origin.overrides,
        watched=False,
        file_roots=origin.file_roots,
    )


def _lifetime(hook: TonyHook, args: Namespace) -> float:
    if args.lifetime is None:
        return min(_LIFETIME, hook.settings.policy.max_lifetime or _LIFETIME)
    seconds = seconds_of("--lifetime", args.lifetime)
    if seconds < _SHORTEST:
        raise SystemExit(f"--lifetime: should be at least {span(_SHORTEST)}")
    return seconds


def _end(lifetime: float) -> float:
    return time.time() + lifetime - min(_BEFORE_THE_END, _SHARE * lifetime)


def _lead(args: Namespace, connection: NotebookConnection) -> None:
    """Connect to the notebook until Ctrl-C or its end."""
    port = args.local_port
    try:
        with until_interrupted() as over:
            connection.wait_for_container(over)
            with connection.open(args.local_port, over) as tunnel:
                port = tunnel.port
                url = connection.wait_for_server(tunnel, over)
                say(f"{url}\nCtrl-C closes the connection; the notebook continues")
                if args.open:
                    open_browser(url)
                with connection.reporting_warnings():
                    while not over.is_set() and not tunnel.wait(_PERIOD):
                        pass
    except Interrupted:
        pass
    except TunnelEnded as error:
        say(connection.ending(error))
        return
    except OSError as error:
        _print_more(args, connection, 0)
        raise SystemExit(port_in_use_message(args.local_port, error)) from error
    _print_more(args, connection, port)


def _print_more(
    args: Namespace, connection: NotebookConnection, port: int, state: str = "The notebook continues to run."
) -> None:
    """Print the state of the notebook, how to return to the notebook, and how to end it.

    ``port`` is the local port to use again, or 0 for any port. If the port stays the same, pages that are still open in
    the browser keep working.
    """
    more = f" --conn-id {args.conn_id}" if args.conn_id != TonyHook.default_conn_name else ""
    back = f" --local-port {port}" if port else ""
    say(state)
    say(f"Reconnect:  airflow tony notebook --name {shlex.quote(connection.name)}{back}{more}")
    say(f"End it:     airflow tony kill {connection.job}{more}")

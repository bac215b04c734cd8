"""Cluster interface for this machine: applications are processes, and their state is in files.

The application master runs in its own session, so it outlives the process that starts it. The module also checks a job
against the resources that the connection grants on this machine.
"""

from __future__ import annotations

import errno
import getpass
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tony_provider.cluster import lifetime
from tony_provider.cluster.errors import MasterOutOfReach, SubmissionRefused, UnexpectedAnswer
from tony_provider.cluster.http import bounded_request, json_object
from tony_provider.cluster.interface import (
    Application,
    ApplicationFilter,
    ApplicationState,
    Cluster,
    Submission,
)
from tony_provider.cluster.local.application_folder import (
    ApplicationFolder,
    ApplicationRecord,
    EndRecord,
    KillRecord,
    TimeLimit,
    application_end,
    settle_application,
    this_boot,
    this_host,
)
from tony_provider.cluster.settings import LocalSettings
from tony_provider.runtime.application import LocalAccess
from tony_provider.runtime.common.archives import ArchiveError
from tony_provider.runtime.common.bounds import MASTER_ANSWER_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.files import UnsafeDirectoryError, make_own_directory, remove_tree
from tony_provider.runtime.common.network import peer_users
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.frameworks.task_type_rules import PeakDemand
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, is_application_id
from tony_provider.runtime.jobspec.container_content import images
from tony_provider.runtime.jobspec.model import AclSpec, JobSpec, StartRule
from tony_provider.runtime.launch.launch_context import (
    PID_FILE,
    container_environment,
    launch_environment,
    materialise,
    write_tokens,
)
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.limits import stop_seconds
from tony_provider.runtime.protocol.master_files import read_report

log = logging.getLogger(__name__)


_START_SECONDS = 20.0  # time limit for the application master's process to write its PID
_POLL = 0.02
_SAID_BYTES = 16 << 10  # bytes of the master's output in the error if the master does not start

# Airflow's process may be killed at any moment, so the new process writes its own PID atomically, then becomes the
# master by exec. The start time (field 22) distinguishes it from a later process with the same PID.
_START = """
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20) || exit 1
echo "$$ $start" > "$1.part" && mv "$1.part" "$1" || exit 1
shift
exec "$@"
"""


def start_master(folder: ApplicationFolder, submission: Submission, user: str) -> subprocess.Popen[bytes]:
    """Start the application master and return after it has written its PID. Raises OSError, ArchiveError."""
    folder.am_logs.mkdir(mode=0o700, parents=True)
    # Create the container directory with its files, as a NodeManager would.
    materialise(folder.am_directory, submission.am_files)
    write_tokens(folder.am_directory, submission.credentials.to_bytes())
    folder.write(_record(folder, submission, user))
    process = _launch(folder, submission)
    _await_start(folder, process)
    return process


def _record(folder: ApplicationFolder, submission: Submission, user: str) -> ApplicationRecord:
    job = submission.description.job
    return ApplicationRecord(
        id=folder.id,
        name=job.name,
        user=user,
        queue=job.queue or "",
        tags=submission.tags,
        started_ms=epoch_ms(),
        grace=float(job.timeouts.grace),
        checkpoint=float(job.timeouts.checkpoint),
        host=this_host(),
        boot_id=this_boot(),
    )


def _environment(folder: ApplicationFolder, submission: Submission) -> dict[str, str]:
    # `python` in a job's command is the worker's interpreter unless the job brings one.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    inherited = {**os.environ, "PATH": path}
    container = container_environment(folder.am_container_id, folder.am_directory, folder.am_logs, inherited)
    return {**launch_environment(submission.description), **container}


def _launch(folder: ApplicationFolder, submission: Submission) -> subprocess.Popen[bytes]:
    with (folder.am_logs / "stdout").open("ab") as stdout, (folder.am_logs / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            ["/bin/sh", "-c", _START, "sh", PID_FILE, *submission.am_command],
            cwd=folder.am_directory,
            env=_environment(folder, submission),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def _await_start(folder: ApplicationFolder, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while folder.master() is None:
        if process.poll() is not None or time.monotonic() >= deadline:
            process.kill()
            process.wait()
            raise OSError(f"the process did not start: {folder.am_log_tail(_SAID_BYTES) or 'without output'}")
        time.sleep(_POLL)


def ask_master(
    folder: Path, path: str, seconds: float, *, body: Mapping[str, Any] | None = None, is_text: bool = False
) -> Any:
    """Send a request to the master; see ``Cluster.ask_master``.

    Raises MasterOutOfReach if no master answers or the master has nothing at this path, and UnexpectedAnswer.
    """
    response = _send("GET", folder, path, seconds) if body is None else _send("PUT", folder, path, seconds, json=body)
    answer: Any = response.content if is_text and response.ok else json_object(response)
    if response.ok and answer is not None:
        return answer
    said = printable(str((answer or {}).get("error", response.status_code)))
    if body is None and not response.ok:
        raise MasterOutOfReach(f"the master of {folder.name} cannot answer: {said}")
    if response.status_code >= requests.codes.server_error:
        raise MasterOutOfReach(f"the master of {folder.name} cannot process the request: {said}")
    raise UnexpectedAnswer(f"the application's master rejected the request: {said}")


def _send(method: str, folder: Path, path: str, seconds: float, **more: Any) -> requests.Response:
    url, secret = master_files.read_tracking_url(folder), master_files.read_tracking_secret(folder)
    if not url or not secret:
        raise MasterOutOfReach(f"the master of {folder.name} has not started")
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    with requests.Session() as session:
        session.trust_env = False  # a proxy from the environment cannot reach this machine's loopback address
        session.mount("http://", _OwnMaster(folder))
        try:
            return bounded_request(  # type: ignore[no-any-return]
                session, method, url + path, MASTER_ANSWER_LIMIT, seconds, headers=headers, timeout=seconds, **more
            )
        except requests.RequestException as error:
            raise MasterOutOfReach(
                f"the master of {folder.name} does not answer ({type(error).__name__}); it may have ended"
            ) from error


class _OwnMaster(HTTPAdapter):
    """Connects only to processes of the folder's owner. Otherwise raises MasterOutOfReach and sends nothing.

    After a master has ended, any user of this machine may listen on its port. That user would receive the secret in the
    next request.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more)
        connect = partial(_OwnConnection, self._folder)
        pool = type("_OwnPool", (HTTPConnectionPool,), {"ConnectionCls": staticmethod(connect)})
        self.poolmanager.pool_classes_by_scheme = {"http": pool}


class _OwnConnection(HTTPConnection):
    def __init__(self, folder: Path, *arguments: Any, **more: Any) -> None:
        self._folder = folder
        super().__init__(*arguments, **more)

    def connect(self) -> None:
        super().connect()
        users = peer_users(self.sock)
        if users - {self._folder.stat().st_uid}:
            raise MasterOutOfReach(
                f"the master of {self._folder.name} has ended: another user of this machine has its port"
            )
        if not users:
            raise MasterOutOfReach(f"the master of {self._folder.name} has ended: no process listens on its port")


def capacity_problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    """Return every reason why the job could never run here, each with the allowed values, or []."""
    found = _size_problems(job, limits)
    found += [
        f"tasks.{name}.resources: this machine has no {', '.join(task.resources)}"
        for name, task in job.tasks.items()
        if task.resources
    ]
    found += [
        f"tasks.{name}.placement: this machine is the only node; remove the key"
        for name, task in job.tasks.items()
        if task.placement is not None
    ]
    if in_image := [path.removesuffix(".docker") for path, image in images(job).items() if image is not None]:
        found.append(
            f"docker: the local backend starts plain processes, not images, but {', '.join(in_image)} would use one"
        )
    return found


def _size_problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    first_come = job.start is StartRule.FIRST_COME  # with this rule, a stage starts with its minimum of tasks
    numbers = {name: job.minimum_containers(name) if first_come else task.instances for name, task in job.tasks.items()}
    peak = PeakDemand(job)
    found = []
    for key, unit in (("memory", " MiB"), ("vcores", ""), ("gpus", "")):
        weights = {name: getattr(task, key) * numbers[name] for name, task in job.tasks.items()}
        wanted, limit = sum(weights[name] for name in peak.heaviest(weights)), getattr(limits, key)
        if wanted > limit:
            found.append(
                f"{key}: tasks that run together need {wanted}{unit}, but this machine allows one job {limit}{unit}; "
                f"request less, or set `local_{key}` in the tony connection"
            )
    return found


_KEPT = 100  # number of ended applications whose folders are kept
_KILL_SLACK = stop_seconds(0.0, 0.0)  # seconds for a kill, in addition to those of user processes and last checkpoints
_MASTER_LOST_AFTER = 10.0  # seconds; short, because the local backend does not restart a master
_KILLED_SECONDS = 10.0  # time for a process to vanish after SIGKILL


class LocalCluster(Cluster):
    """The local backend: runs applications as processes on this machine, and keeps their state in files.

    Methods and errors are those of ``Cluster``.
    """

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._applications = settings.root / "applications"
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def user(self) -> str:
        return getpass.getuser()

    def check(self, job: JobSpec) -> Iterator[str]:
        yield from lifetime.problems(job, time.time())
        yield from capacity_problems(job, self._settings)

    def new_application(self) -> str:
        return str(ApplicationId(epoch_ms(), secrets.randbelow(10**6)))

    def submit(self, submission: Submission) -> None:
        self._tidy()
        if submission.description.job.acls != AclSpec():
            log.warning(
                "acls: the local backend ignores them; users who can read the application's folder "
                "can view and stop the job"
            )
        folder = self._folder(submission.description.application_id)
        try:
            make_own_directory(self._applications)
            folder.path.mkdir(mode=0o700)
        except FileExistsError:
            return  # an earlier call has started the application
        except UnsafeDirectoryError as error:
            raise SubmissionRefused(str(error)) from error
        except OSError as error:
            raise SubmissionRefused(f"the local cluster cannot write {folder.path}: {error.strerror}") from error
        try:
            self._children.append(start_master(folder, submission, self.user))
        except (OSError, ArchiveError) as error:
            remove_tree(folder.path)
            advice = (
                ". Free space in the local cluster's directory"
                if isinstance(error, OSError) and error.errno == errno.ENOSPC
                else ""
            )
            raise SubmissionRefused(f"the application master could not be started: {error}{advice}") from error

    def request(self, submission: Submission) -> dict[str, Any]:
        """Return the data with which ``submit`` starts the master, for display. The local backend sends no request."""
        return {
            "application-id": submission.description.application_id,
            "application-name": submission.description.job.name,
            "application-tags": submission.tags,
            "resources": {each.name: each.uri for each in submission.am_resources},
            "credentials": sorted(submission.credentials.secrets),
        }

    def applications(self, which: ApplicationFilter) -> list[Application]:
        found = [
            application
            for folder in self._folders()
            if (record := folder.read(ApplicationRecord)) is not None
            and which.tag in (None, *record.tags)
            and not (which.live and folder.read(EndRecord) is not None)
            and which.holds(application := self._application(folder, record))
        ]
        return sorted(found, key=lambda application: application.started_ms, reverse=True)

    def application(self, application_id: str) -> Application | None:
        if not is_application_id(application_id):
            return None
        folder = self._folder(application_id)
        record = folder.read(ApplicationRecord)
        return None if record is None else self._application(folder, record)

    def kill(self, application_id: str, diagnostics: str) -> None:
        application = self.application(application_id)
        folder = self._folder(application_id)
        record = folder.read(ApplicationRecord)
        if application is None or application.is_final or record is None:
            return
        if folder.read(KillRecord) is None:
            folder.write(KillRecord(diagnostics))
        master = folder.master()
        if master is not None:
            master.signal(signal.SIGTERM)
            if not master.wait_gone(record.grace + record.checkpoint + _KILL_SLACK):
                log.warning("%s did not end in time: killing it", application_id)
                master.signal(signal.SIGKILL)
                master.wait_gone(_KILLED_SECONDS)
        settle_application(folder)

    def ask_master(
        self,
        application_id: str,
        path: str,
        seconds: float,
        *,
        body: Mapping[str, Any] | None = None,
        is_text: bool = False,
    ) -> Any:
        if not is_application_id(application_id):
            raise MasterOutOfReach(f"there is no application {application_id!r}")
        return ask_master(self._folder(application_id).path, path, seconds, body=body, is_text=is_text)

    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Record the time limit. The first access to the application after that time kills the application."""
        application = self.application(application_id)
        if application is None or application.is_final:
            return
        folder = self._folder(application_id)
        until = time.time() + seconds
        former = folder.read(TimeLimit)
        if prolong or former is None or until < former.until:
            folder.write(TimeLimit(until, diagnostics))

    def am_log(self, application_id: str, max_bytes: int) -> str:
        return self._folder(application_id).am_log_tail(max_bytes) if is_application_id(application_id) else ""

    def forget(self, application_id: str) -> None:
        application = self.application(application_id)
        if application is not None and application.is_final:
            self._folder(application_id).remove_work()

    def access(self, application_id: str, job: JobSpec | None = None) -> LocalAccess:
        limits = self._settings
        return LocalAccess(str(self._folder(application_id).path), limits.memory, limits.vcores, limits.gpus)

    def master_lost_after(self) -> float:
        return _MASTER_LOST_AFTER

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _folder(self, application_id: str) -> ApplicationFolder:
        return ApplicationFolder(self._applications / application_id)

    def _folders(self) -> Iterator[ApplicationFolder]:
        if self._applications.is_dir():
            for path in self._applications.iterdir():
                if is_application_id(path.name):
                    yield ApplicationFolder(path)

    def _application(self, folder: ApplicationFolder, record: ApplicationRecord) -> Application:
        for child in self._children:
            child.poll()  # reaps the process, which would otherwise stay a zombie
        end = application_end(folder, record)
        report = read_report(folder.path)
        return Application(
            id=record.id,
            state=end.state if end else ApplicationState.RUNNING,
            final_status=end.final_status if end else None,
            name=record.name,
            user=record.user,
            queue=record.queue,
            tracking_url=report.tracking_url if report else master_files.read_tracking_url(folder.path),
            diagnostics=printable(end.diagnostics) if end else "",
            progress=1.0 if end else 0.0,
            started_ms=record.started_ms,
            finished_ms=end.finished_ms if end else None,
            tags=record.tags,
            attempt=str(ApplicationAttemptId(ApplicationId.parse(record.id), 1)),
        )

    def _tidy(self) -> None:
        """Remove all ended applications except the newest _KEPT."""
        over = [folder for folder in self._folders() if folder.read(EndRecord) is not None]
        for folder in sorted(over, key=lambda folder: folder.id, reverse=True)[_KEPT:]:
            remove_tree(folder.path)

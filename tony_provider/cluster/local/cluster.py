"""This machine as a Cluster: the same application master and executors, as processes beside Airflow.

The application master lives in a session of its own, so that it outlives the Airflow task that started it; what is
known of it is in files (``application_folder.py``) and in /proc.
"""

from __future__ import annotations

import fcntl
import getpass
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tony_provider.cluster.base import Application, ApplicationState, Cluster, Submission
from tony_provider.cluster.errors import ConnectionProblem, JobRejected, SubmissionRefused
from tony_provider.cluster.local.application_folder import (
    ApplicationFolder,
    Ended,
    Killed,
    Record,
    this_boot,
    this_host,
)
from tony_provider.cluster.local.processes import ProcessId, kill_all, processes_of
from tony_provider.cluster.settings import LocalSettings
from tony_provider.cluster.yarn.submission import am_environment
from tony_provider.runtime import contract
from tony_provider.runtime.am.archives import ArchiveCache, ArchiveError, private_file
from tony_provider.runtime.am.backends import shared_cache
from tony_provider.runtime.am.container_dir import TOKEN_FILE, container_environment, materialise
from tony_provider.runtime.am.final_report import read_report
from tony_provider.runtime.am.local_process import PID_FILE
from tony_provider.runtime.am.resource_manager import FinalStatus
from tony_provider.runtime.application import LocalAccess
from tony_provider.runtime.spec.model import JobSpec

log = logging.getLogger(__name__)

_ID = re.compile(r"application_\d+_\d+")
_KEPT = 100  # ended applications that are remembered
_START_SECONDS = 20.0  # until the application master's process has said its number
_UNSTARTED_SECONDS = 60.0  # after which an application without a process was abandoned by who submitted it
_KILL_SLACK = 10.0  # seconds beyond the grace of user processes
_EXIT_SECONDS = 30.0  # that an application master may take to exit once it has said how the job ended
_POLL = 0.02

# Who starts the master may be killed at any moment: so the process itself says, in one act, who it is, and stays that
# process. The start time (field 22) tells it from a later one of the same number.
_START = """
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20) || exit 1
echo "$$ $start" > "$1.part" && mv "$1.part" "$1" || exit 1
shift
exec "$@"
"""


class LocalCluster(Cluster):
    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._applications = settings.root / "applications"
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def user(self) -> str:
        return getpass.getuser()

    def check(self, job: JobSpec) -> None:
        limits = self._settings
        tasks = job.tasks.items()
        found = []
        for key, wanted, limit, unit in (
            ("memory", sum(task.memory * task.instances for _, task in tasks), limits.memory, " MiB"),
            ("vcores", sum(task.vcores * task.instances for _, task in tasks), limits.vcores, ""),
            ("gpus", sum(task.gpus * task.instances for _, task in tasks), limits.gpus, ""),
        ):
            if wanted > limit:
                found.append(
                    f"{key}: all tasks together want {wanted}{unit}, and this machine gives one job {limit}{unit}; ask "
                    f"for less, or set `local_{key}` in the tony connection"
                )
        found += [
            f"tasks.{name}.resources: this machine has no {', '.join(task.resources)}"
            for name, task in tasks
            if task.resources
        ]
        if job.docker is not None:
            found.append("docker: the local backend starts plain processes, not images")
        if found:
            raise JobRejected(found)

    def new_application(self) -> str:
        return f"application_{time.time_ns() // 1_000_000}_{secrets.randbelow(10**6):06d}"

    def submit(self, submission: Submission) -> None:
        self._tidy()
        folder = self._folder(submission.description.application_id)
        try:
            folder.path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return  # started already
        except OSError as error:
            raise SubmissionRefused(f"the local cluster cannot write {folder.path}: {error.strerror}") from error
        try:
            self._start(folder, submission)
        except (OSError, ArchiveError) as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise SubmissionRefused(f"the application master could not be started: {error}") from error

    def _start(self, folder: ApplicationFolder, submission: Submission) -> None:
        description = submission.description
        directory, logs = folder.am_directory, folder.am_logs
        logs.mkdir(mode=0o700, parents=True)
        cache = ArchiveCache(
            shared_cache(self.access(folder.id)), folder.path / "unpacked", description.application_dir
        )
        materialise(directory, submission.am_resources, cache)
        private_file(directory / TOKEN_FILE, submission.credentials.to_bytes())
        # `python` in a job's command is the worker's, unless the job brings its own.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {
            **am_environment(submission),
            **container_environment(folder.am_container_id, directory, logs, {**os.environ, "PATH": path}),
        }
        folder.write_record(
            Record(
                id=folder.id,
                name=description.job.name,
                user=self.user,
                queue=description.job.queue or "",
                tags=submission.tags,
                started_ms=time.time_ns() // 1_000_000,
                grace=float(description.job.timeouts.grace),
                host=this_host(),
                boot_id=this_boot(),
            )
        )
        command = ["/bin/sh", f"{contract.RUNTIME_DIR}/launch.sh", "am"]
        with (logs / "stdout").open("ab") as stdout, (logs / "stderr").open("ab") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _START, "sh", PID_FILE, *command],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self._children.append(process)
        self._await_start(folder, process)

    def _await_start(self, folder: ApplicationFolder, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while folder.master() is None:
            if process.poll() is not None or time.monotonic() >= deadline:
                process.kill()
                process.wait()
                raise OSError(f"it ended at once: {self.am_log(folder.id) or 'without a word'}")
            time.sleep(_POLL)

    def find(self, tag: str) -> list[Application]:
        live = [
            application
            for folder in self._folders()
            if (record := folder.record()) is not None
            and tag in record.tags
            and folder.ended() is None
            and not (application := self._application(folder, record)).is_final
        ]
        return sorted(live, key=lambda application: application.started_ms, reverse=True)

    def application(self, application_id: str) -> Application | None:
        if not _ID.fullmatch(application_id):
            return None
        folder = self._folder(application_id)
        record = folder.record()
        return None if record is None else self._application(folder, record)

    def kill(self, application_id: str, diagnostics: str) -> None:
        folder = self._folder(application_id)
        record = folder.record()
        if record is None or self._application(folder, record).is_final:
            return
        if folder.killed() is None:
            folder.write_killed(Killed(diagnostics))
        master = folder.master()
        if master is not None:
            master.signal(signal.SIGTERM)
            if not master.wait_gone(record.grace + _KILL_SLACK):
                log.warning("%s did not end within its grace of %g s: killing it", application_id, record.grace)
                master.signal(signal.SIGKILL)
                master.wait_gone(_KILL_SLACK)
        self._settle(folder, record)

    def am_log(self, application_id: str, max_bytes: int = 16 << 10) -> str:
        try:
            with (self._folder(application_id).am_logs / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def forget(self, application_id: str) -> None:
        application = self.application(application_id)
        if application is not None and application.is_final:
            self._folder(application_id).remove_work()

    def access(self, application_id: str) -> LocalAccess:
        limits = self._settings
        return LocalAccess(str(self._folder(application_id).path), limits.memory, limits.vcores, limits.gpus)

    def close(self) -> None:
        """Nothing is held open."""

    def _folder(self, application_id: str) -> ApplicationFolder:
        return ApplicationFolder(self._applications / application_id)

    def _folders(self) -> Iterator[ApplicationFolder]:
        if self._applications.is_dir():
            for path in self._applications.iterdir():
                if _ID.fullmatch(path.name):
                    yield ApplicationFolder(path)

    def _application(self, folder: ApplicationFolder, record: Record) -> Application:
        ended = folder.ended() or (None if self._is_alive(folder, record) else self._settle(folder, record))
        report = read_report(folder.path)
        return Application(
            id=record.id,
            state=ended.state if ended else ApplicationState.RUNNING,
            final_status=ended.final_status if ended else None,
            name=record.name,
            user=record.user,
            queue=record.queue,
            tracking_url=(report.tracking_url or None) if report else None,
            diagnostics=ended.diagnostics if ended else "",
            progress=1.0 if ended else 0.0,
            started_ms=record.started_ms,
            finished_ms=ended.finished_ms if ended else None,
            tags=record.tags,
            attempt=f"{record.id.replace('application', 'appattempt', 1)}_000001",
        )

    def _is_alive(self, folder: ApplicationFolder, record: Record) -> bool:
        if record.host != this_host():
            raise ConnectionProblem(
                f"{record.id} runs on {record.host}, and this is {this_host()}: the local backend needs all of Airflow "
                f"on one machine. If {record.host} is gone for good, remove {folder.path}"
            )
        for child in self._children:
            child.poll()  # or it stays a zombie while this process lives
        if record.boot_id != this_boot():
            return False
        master = folder.master()
        if master is None:
            return time.time() - record.started_ms / 1000 < _UNSTARTED_SECONDS
        report = read_report(folder.path)
        if report is not None and time.time() - report.finished_ms / 1000 > _EXIT_SECONDS:
            master.signal(signal.SIGKILL)  # as YARN does with one that lingers
            master.wait_gone(_EXIT_SECONDS)
        return master.alive

    def _settle(self, folder: ApplicationFolder, record: Record) -> Ended:
        """The application master is gone: stop what it left, write down how it ended, and clean up. Once."""
        with _locked(folder.path / "lock"):
            ended = folder.ended()
            if ended is None:
                if not kill_all(lambda: _leftovers(folder)):
                    log.warning("%s has left processes that cannot be killed", record.id)
                ended = self._verdict(folder)
                folder.write_ended(ended)
                folder.remove_work()
                log.info("%s ended: %s", record.id, ended.state)
            return ended

    def _verdict(self, folder: ApplicationFolder) -> Ended:
        now = time.time_ns() // 1_000_000
        report, killed = read_report(folder.path), folder.killed()
        if killed is not None and (report is None or report.final_status is FinalStatus.KILLED):
            return Ended(ApplicationState.KILLED, FinalStatus.KILLED, killed.diagnostics, now)
        if report is not None:
            return Ended(ApplicationState.FINISHED, report.final_status, report.diagnostics, report.finished_ms)
        tail = self.am_log(folder.id, 4096).strip()
        said = f"; the last it said:\n{tail}" if tail else ""
        return Ended(
            ApplicationState.FAILED,
            FinalStatus.FAILED,
            f"the application master ended without saying how the job did{said}",
            now,
        )

    def _tidy(self) -> None:
        """Forget the oldest of the applications that have ended."""
        ended = [folder for folder in self._folders() if folder.ended() is not None]
        for folder in sorted(ended, key=lambda folder: folder.id, reverse=True)[_KEPT:]:
            shutil.rmtree(folder.path, ignore_errors=True)


def _leftovers(folder: ApplicationFolder) -> list[ProcessId]:
    """Processes of the application that still run, found by their groups and by what every container's have set."""
    marks = [
        f"{contract.ENV_APPLICATION_ID}={folder.id}",
        *(f"{contract.ENV_TOKEN_FILE}={path / TOKEN_FILE}" for path in folder.path.glob("containers/*")),
    ]
    return processes_of(list(folder.containers()), {mark.encode() for mark in marks})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released on close
        yield

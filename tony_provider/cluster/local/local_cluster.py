"""Cluster interface for this machine: applications are processes, and their state is in files.

Also checks a job against the resources that the connection grants on this machine.
"""

from __future__ import annotations

import errno
import getpass
import logging
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tony_provider.cluster import lifetime
from tony_provider.cluster.errors import MasterOutOfReach, SubmissionRefused
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
)
from tony_provider.cluster.local.master import ask_master, start_master
from tony_provider.cluster.settings import LocalSettings
from tony_provider.runtime.application import LocalAccess
from tony_provider.runtime.common.archives import ArchiveError
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.files import UnsafeDirectoryError, make_own_directory, remove_tree
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.frameworks.task_type_rules import PeakDemand
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, is_application_id
from tony_provider.runtime.jobspec.container_content import images
from tony_provider.runtime.jobspec.model import AclSpec, JobSpec, StartRule
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.timing import stop_seconds

log = logging.getLogger(__name__)

T = TypeVar("T")


def capacity_problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    """Return every reason why the job could never run here, each with the allowed values, or []."""
    found = _size_problems(job, limits)
    found += [
        f"tasks.{name}.resources: this machine has no {', '.join(task.resources)}"
        for name, task in job.tasks.items()
        if task.resources
    ]
    found += [
        f"tasks.{name}.placement: this machine is the only node; leave it out"
        for name, task in job.tasks.items()
        if task.placement is not None
    ]
    if in_image := [path.removesuffix(".docker") for path, image in images(job).items() if image is not None]:
        found.append(
            f"docker: the local backend starts plain processes, not images, and {', '.join(in_image)} would run in one"
        )
    return found


def _size_problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    first_come = job.start is StartRule.FIRST_COME  # otherwise all tasks of a stage are requested at once
    tasks = {
        name: (task, job.minimum_containers(name) if first_come else task.instances) for name, task in job.tasks.items()
    }
    peak = PeakDemand(job)

    def most(weights: dict[str, int]) -> int:
        return sum(weights[name] for name in peak.heaviest(weights))

    return [
        f"{key}: tasks that run together want {wanted}{unit}, and this machine gives one job {limit}{unit}; ask "
        f"for less, or set `local_{key}` in the tony connection"
        for key, wanted, limit, unit in (
            (
                "memory",
                most({name: task.memory * number for name, (task, number) in tasks.items()}),
                limits.memory,
                " MiB",
            ),
            ("vcores", most({name: task.vcores * number for name, (task, number) in tasks.items()}), limits.vcores, ""),
            ("gpus", most({name: task.gpus * number for name, (task, number) in tasks.items()}), limits.gpus, ""),
        )
        if wanted > limit
    ]


_KEPT = 100  # ended applications that are kept
_KILL_SLACK = stop_seconds(0.0, 0.0)  # in addition to the grace of user processes and the last copies of checkpoints
_MASTER_LOST_AFTER = 10.0  # seconds: the local backend does not restart a master
_KILLED_SECONDS = 10.0  # for a process to vanish after SIGKILL


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
            log.warning("acls: nothing comes of them here; who may read the application's folder may look, and stop it")
        folder = self._folder(submission.description.application_id)
        try:
            make_own_directory(self._applications)
            folder.path.mkdir(mode=0o700)
        except FileExistsError:
            return  # started already
        except UnsafeDirectoryError as error:
            raise SubmissionRefused(str(error)) from error
        except OSError as error:
            raise SubmissionRefused(f"the local cluster cannot write {folder.path}: {error.strerror}") from error
        try:
            self._children.append(start_master(folder, submission, self.access(folder.id), self.user))
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
                log.warning("%s does not end: killing it", application_id)
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
        """Record the limit. The first access to the application after that time kills it."""
        application = self.application(application_id)
        if application is None or application.is_final:
            return
        folder = self._folder(application_id)
        until = time.time() + seconds
        former = folder.read(TimeLimit)
        if prolong or former is None or until < former.until:
            folder.write(TimeLimit(until, diagnostics))

    def am_log(self, application_id: str, max_bytes: int = 16 << 10) -> str:
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
        """Remove the oldest ended applications, except the newest _KEPT."""
        over = [folder for folder in self._folders() if folder.read(EndRecord) is not None]
        for folder in sorted(over, key=lambda folder: folder.id, reverse=True)[_KEPT:]:
            remove_tree(folder.path)

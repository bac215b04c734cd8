"""The Cluster interface: where a job runs, seen from Airflow's side. ``yarn`` and ``local`` stand behind it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from tony_provider.cluster.application_state import ApplicationState as ApplicationState
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, YarnAccess
from tony_provider.runtime.common import clock
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import container_files, launch_command
from tony_provider.runtime.protocol.http_messages import OutputPiece
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus


def _web_address(given: str | None) -> str | None:
    """Return the address of a job's page as its master reports it, or None if it is not a web address."""
    return given if given and given.startswith(("http://", "https://")) and given.isprintable() else None


def _noticeable(ahead: float) -> float:
    return ahead if abs(ahead) > clock.TOLERANCE else 0.0


@attrs.frozen
class Application:
    """What the cluster says of one application."""

    id: str
    state: ApplicationState
    final_status: FinalStatus | None = None  # None: not known yet
    name: str = ""
    user: str = ""
    queue: str = ""
    # The address of the application's page, once its master has registered.
    tracking_url: str | None = attrs.field(default=None, converter=_web_address)
    diagnostics: str = ""
    progress: float = 0.0  # 0 to 1
    started_ms: int = 0  # epoch, when it was submitted
    finished_ms: int | None = None
    tags: list[str] = attrs.field(factory=list)
    attempt: str | None = None  # the current application attempt's id
    # Seconds by which the cluster's clock is ahead of this machine's; 0 within clock.TOLERANCE, or if it is unknown.
    clock_ahead: float = attrs.field(default=0.0, eq=False, converter=_noticeable)

    @property
    def is_final(self) -> bool:
        return self.state.is_final


@attrs.frozen
class ApplicationFilter:
    """Which of our applications are asked for; a field that is None excludes none."""

    live: bool | None = None  # have not ended
    user: str | None = None  # whom they run as
    tag: str | None = None

    def holds(self, application: Application) -> bool:
        return (
            self.live in (None, not application.is_final)
            and self.user in (None, application.user)
            and (self.tag is None or self.tag in application.tags)
        )


@attrs.frozen
class Pages:
    """The addresses at which people look at an application in a browser. None: there is no such page."""

    application: str | None = None  # the cluster's
    job: str | None = None  # its master's own, while it runs; ends with a slash
    files: str | None = None  # its directory on the store


@attrs.frozen
class Submission:
    """Everything a cluster needs to start one application."""

    description: ApplicationDescription
    description_file: LocalizedResource  # the same, written to the store, as every container gets it
    am_resources: list[LocalizedResource]  # the job's files that the application master's container gets
    credentials: Credentials
    tags: list[str]

    @property
    def am_command(self) -> list[str]:
        """The command that starts the application master."""
        description = self.description
        return launch_command("am", description.runtime, description.runtime_pythons, self.am_resources)

    @property
    def am_files(self) -> dict[str, LocalizedResource]:
        """All files of the application master's container, by their names in its directory."""
        return container_files(self.description.runtime, self.description_file, self.am_resources)


CONTROL_SECONDS = 20.0  # that a running application's master may take to answer


class Cluster(ABC):
    """Where applications run, seen from Airflow's side: checks, starts, watches and ends them.

    All calls block, end by a deadline, and may be made from several threads. All raise ClusterUnreachable,
    ClusterAuthError or UnexpectedAnswer besides what they name, and try again by themselves for as long as the deadline
    lets them.
    """

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the cluster's clock is ahead of this machine's, by its last answer. 0 if it is unknown."""
        return 0.0

    @abstractmethod
    def check(self, job: JobSpec) -> None:
        """Find what would keep this job from ever running here. Changes nothing.

        Raises JobRejected with every problem found, SubmissionRefused when the cluster takes no submissions at all.
        """

    @abstractmethod
    def queue_problem(self, queue: str) -> str | None:
        """Why no application could ever be submitted to this queue, and which ones there are; None when it could."""

    @abstractmethod
    def new_application(self) -> str:
        """A fresh application id. Unused ones cost nothing."""

    @abstractmethod
    def submit(self, submission: Submission) -> None:
        """Start the application under its id. Idempotent: the same id is started once.

        Raises SubmissionRefused. After any other error the application may or may not run: ask ``application``.
        """

    @abstractmethod
    def request(self, submission: Submission) -> dict[str, Any]:
        """What ``submit`` would ask for, for people to read: nothing is sent, and secrets are masked."""

    @abstractmethod
    def applications(self, which: ApplicationFilter) -> list[Application]:
        """Our kind of applications that the cluster remembers, newest first. One request, filtered by the cluster."""

    def live(self) -> list[Application]:
        """Our user's applications that have not ended, newest first. One request, whatever their number."""
        return self.applications(ApplicationFilter(live=True, user=self.user))

    @abstractmethod
    def application(self, application_id: str) -> Application | None:
        """What the cluster says of one application.

        None when the cluster does not know it, which does not prove that it never ran: clusters forget.
        """

    @abstractmethod
    def kill(self, application_id: str, diagnostics: str) -> None:
        """Ask for the application's end at once; returns before it has ended on YARN, after it on the local cluster.

        Idempotent: one that has ended or is unknown is left as it is.
        """

    @abstractmethod
    def control(
        self, application_id: str, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS
    ) -> dict[str, Any]:
        """Ask the master of a running application for something; returns its answer. See ``runtime/am/web/control.py``.

        Idempotent. Raises MasterOutOfReach when no master took it within ``seconds``, because it has not started yet,
        has ended, or does not answer; ClusterAuthError when this user may not.
        """

    @abstractmethod
    def task_log(self, application_id: str, task: str, max_bytes: int, *, seconds: float = CONTROL_SECONDS) -> bytes:
        """The end of what a task (such as worker:0) of a running application has printed, as its master has it.

        Begins at the start of a line. Raises MasterOutOfReach when no master answers within ``seconds``, or when it has
        nothing to show; ClusterAuthError when this user may not.
        """

    @abstractmethod
    def task_output(
        self, application_id: str, task: str, attempt: int | None, after: int, *, seconds: float = CONTROL_SECONDS
    ) -> OutputPiece:
        """What a task has printed in one of its containers after so many bytes of it, without the job's secrets.

        ``attempt`` is the container's number, or None for the newest. Raises NotServed where the master is of a release
        that has no such answers, MasterOutOfReach when none answers within ``seconds``; ClusterAuthError.
        """

    @abstractmethod
    def master_status(self, application_id: str, *, seconds: float = CONTROL_SECONDS) -> JobStatus:
        """The job's status as the master of a running application says it, whatever has become of its ``status.json``.

        Raises MasterOutOfReach when no master answers within ``seconds``; ClusterAuthError when this user may not.
        """

    @abstractmethod
    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Have the cluster kill the application should it still be there after ``seconds``, whoever watches then.

        A limit that was set before is shortened, and prolonged only where ``prolong`` says so. An application that has
        ended or is unknown is left as it is.
        """

    def pages(self, application_id: str) -> Pages:
        """The application's pages, also of one that has just been submitted and has none yet."""
        return Pages()

    @abstractmethod
    def am_log(self, application_id: str, max_bytes: int = 16 << 10) -> str:
        """The end of the application master's own output, for a master that died before it could say why.

        At most ``max_bytes`` of it; empty when there is none to be had.
        """

    @abstractmethod
    def forget(self, application_id: str) -> None:
        """Remove what this machine keeps of an application that has ended. Idempotent; nothing to do on YARN."""

    @abstractmethod
    def access(self, application_id: str, job: JobSpec | None = None) -> YarnAccess | LocalAccess:
        """What the application master needs to reach this cluster from inside, and to know of it for its job."""

    def client_configuration(self) -> dict[str, str]:
        """The properties that Hadoop's clients on the nodes need; none where there is no Hadoop, or it tells none."""
        return {}

    @abstractmethod
    def master_lost_after(self) -> float:
        """Seconds without an application master after which none can come any more.

        That is longer than the cluster needs to notice the death of one, and to start the next.
        """

    @property
    @abstractmethod
    def user(self) -> str:
        """The user whom applications run as."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. Idempotent."""


_POLL = 0.5  # seconds


def wait_for_end(look: Callable[[], Application | None], seconds: float) -> Application | None:
    """The application as it still is after that time; None once it has ended, or is not known to the cluster."""
    deadline = time.monotonic() + seconds
    while (application := look()) is not None and not application.is_final:
        if time.monotonic() >= deadline:
            return application
        time.sleep(_POLL)
    return None

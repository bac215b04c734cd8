"""The Cluster interface, with which Airflow runs applications, and the types that its methods use.

The packages ``yarn`` and ``local`` implement it. The module also limits the size of a status that a job reports.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import attrs

from tony_provider.cluster.errors import MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.findings import Finding
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, YarnAccess
from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.bounds import printable_json
from tony_provider.runtime.common.codec import CodecError, from_plain
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import container_files, launch_command
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.http_messages import STORY_PATH, OutputPiece, output_request
from tony_provider.runtime.protocol.status import ApplicationState as ApplicationState
from tony_provider.runtime.protocol.status import Failure, FinalStatus, JobStatus, TaskProgress, TaskStatus, TaskStory

MOST_WARNINGS = 200
_MANY = limits.MOST_OUTPUTS  # also the limit for inputs and task types
_TEXT = 4 << 10  # characters of a warning, a name or a URI
_LONG = 64 << 10  # characters of a message, which ends with program output


def bounded_status(status: JobStatus) -> JobStatus:
    """Return the status with values beyond the limits removed or truncated."""
    return attrs.evolve(
        status,
        name=status.name[:_TEXT],
        message=status.message[:_LONG],
        tasks=[_task(each) for each in status.tasks],
        model_dir=status.model_dir if len(status.model_dir or "") <= _TEXT else None,
        failure=_failure(status.failure),
        restarted_after=_failure(status.restarted_after),
        warnings=_lines(status.warnings, "warnings"),
        troubles=_lines(status.troubles, "troubles"),
        inputs=status.inputs[:_MANY],
        outputs=[each for each in status.outputs[:_MANY] if len(each.name) + len(each.uri) <= _TEXT],
        use=status.use[:_MANY],
        parameters=dict(islice(limits.valid_parameters(status.parameters).items(), limits.MOST_PARAMETERS)),
        labels={name: value[:_TEXT] for name, value in islice(status.labels.items(), _MANY)},
    )


def _lines(lines: Sequence[str], what: str) -> list[str]:
    more = len(lines) - MOST_WARNINGS
    return [*(each[:_TEXT] for each in lines[:MOST_WARNINGS]), *([f"{more} more {what} are left out"] * (more > 0))]


def _failure(failure: Failure | None) -> Failure | None:
    if failure is None:
        return None
    task, cause = failure.task and failure.task[:_TEXT], failure.cause[:_TEXT]
    return attrs.evolve(failure, message=failure.message[:_LONG], task=task, cause=cause)


def _task(task: TaskStatus) -> TaskStatus:
    """Return the task's status within the limits. Copy it only if necessary, because there can be thousands."""
    found = task
    if task.progress is not None and _is_large(task.progress):
        found = attrs.evolve(found, progress=_progress(task.progress))
    if len(task.activity) > _TEXT:
        found = attrs.evolve(found, activity=task.activity[:_TEXT])
    if len(task.further) > _MANY or any(each.progress and _is_large(each.progress) for each in task.further):
        bounded = (attrs.evolve(each, progress=each.progress and _progress(each.progress)) for each in task.further)
        found = attrs.evolve(found, further=list(islice(bounded, _MANY)))
    return found


def _is_large(progress: TaskProgress) -> bool:
    names = progress.metrics
    return len(names) > limits.MOST_METRICS or any(len(name) > limits.LONGEST_NAME for name in names)


def _progress(progress: TaskProgress) -> TaskProgress:
    short = ((name, value) for name, value in progress.metrics.items() if len(name) <= limits.LONGEST_NAME)
    return attrs.evolve(progress, metrics=dict(islice(short, limits.MOST_METRICS)))


def _web_address(given: str | None) -> str | None:
    """Return the address that a master reports for its job's page, or None if it is not a web address."""
    return given if given and given.startswith(("http://", "https://")) and given.isprintable() else None


def _noticeable(ahead: float) -> float:
    return ahead if abs(ahead) > clock.TOLERANCE else 0.0


@attrs.frozen
class Application:
    """The cluster's report on one application."""

    id: str
    state: ApplicationState
    final_status: FinalStatus | None = None  # None if it is not known yet
    name: str = ""
    user: str = ""
    queue: str = ""
    # The address of the job's page; None until the application's master has registered.
    tracking_url: str | None = attrs.field(default=None, converter=_web_address)
    diagnostics: str = ""
    progress: float = 0.0  # 0 to 1
    started_ms: int = 0  # time of the submission in epoch milliseconds
    finished_ms: int | None = None
    tags: list[str] = attrs.field(factory=list)
    attempt: str | None = None  # id of the current application attempt; None if unknown
    # Seconds by which the cluster's clock is ahead of this machine's. 0 if the difference is unknown or at most
    # clock.TOLERANCE.
    clock_ahead: float = attrs.field(default=0.0, eq=False, converter=_noticeable)

    @property
    def is_final(self) -> bool:
        return self.state.is_final

    @property
    def attempt_number(self) -> int | None:
        """The number of the current application attempt; None if there is none yet, or if it is unknown."""
        try:
            return ApplicationAttemptId.parse(self.attempt or "").number
        except ValueError:
            return None


@attrs.frozen
class ApplicationFilter:
    """Selects applications of this provider. A field that is None is ignored."""

    live: bool | None = None  # True selects running and waiting applications, False ended ones
    user: str | None = None  # user that the applications run as
    tag: str | None = None

    def holds(self, application: Application) -> bool:
        return (
            self.live in (None, not application.is_final)
            and self.user in (None, application.user)
            and (self.tag is None or self.tag in application.tags)
        )


@attrs.frozen
class Pages:
    """URLs of an application's pages for a browser. A field is None if there is no such page."""

    application: str | None = None  # the cluster's page
    job: str | None = None  # the master's own page, available while the master runs; ends with a slash
    files: str | None = None  # the application's directory on the store


@attrs.frozen
class Submission:
    """Everything that a cluster needs to start one application."""

    description: ApplicationDescription
    am_resources: list[LocalizedResource]  # further files of the job for the application master's container
    credentials: Credentials
    tags: list[str]

    @property
    def am_command(self) -> list[str]:
        """The command that starts the application master."""
        description = self.description
        return launch_command("am", description.runtime, description.runtime_pythons, self.am_resources)

    @property
    def am_files(self) -> dict[str, LocalizedResource]:
        """All files of the application master's container, by file name in the container."""
        return container_files(self.description.runtime, self.am_resources)


CONTROL_SECONDS = 20.0  # default time limit for an answer of an application master


class Cluster(ABC):
    """A cluster: checks jobs, and starts, watches and ends applications.

    All methods block, retry until a deadline, and may be called from several threads. In addition to the errors in
    their docstrings, all methods raise ClusterUnreachable, ClusterAuthError and UnexpectedAnswer.
    """

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the cluster's clock was ahead of ours at the cluster's last answer. 0 if unknown."""
        return 0.0

    @abstractmethod
    def check(self, job: JobSpec) -> Iterator[Finding | str]:
        """Yield every reason why this job can never run on the cluster, and findings about capacity. Changes nothing.

        Raises SubmissionRefused if the cluster accepts no submissions at all.
        """

    @abstractmethod
    def new_application(self) -> str:
        """Return a new application id. Unused ids cost nothing."""

    @abstractmethod
    def submit(self, submission: Submission) -> None:
        """Start the application under its id. Idempotent: the cluster starts the same id only once.

        Raises SubmissionRefused. After any other error the application may be running: check with ``application``.
        """

    @abstractmethod
    def request(self, submission: Submission) -> dict[str, Any]:
        """Return the request that ``submit`` would send, for display, with masked secrets. Sends nothing."""

    @abstractmethod
    def applications(self, which: ApplicationFilter) -> list[Application]:
        """Return this provider's applications that the cluster remembers, newest first, with one filtered request."""

    def live(self) -> list[Application]:
        """Return the current user's applications that have not ended, newest first, with one request."""
        return self.applications(ApplicationFilter(live=True, user=self.user))

    @abstractmethod
    def application(self, application_id: str) -> Application | None:
        """Return the cluster's report on one application, or None if the cluster does not know it.

        None does not prove that the application never ran, because clusters forget.
        """

    @abstractmethod
    def kill(self, application_id: str, diagnostics: str) -> None:
        """Kill the application. On YARN return before its end, on the local cluster after its end.

        Idempotent. Do nothing if the application has ended or is unknown.
        """

    @abstractmethod
    def ask_master(
        self,
        application_id: str,
        path: str,
        seconds: float,
        *,
        body: Mapping[str, Any] | None = None,
        is_text: bool = False,
    ) -> Any:
        """Send a request to the master of a running application; return the master's answer.

        :param path: URL path and query of the request.
        :param body: JSON body of a PUT request. If None, send a GET request.
        :param is_text: True if the answer is plain text, returned as bytes. False if it is a JSON object.

        Raises MasterOutOfReach if no master accepts the request within ``seconds``: it has not started yet, has ended,
        or does not answer. Raises ClusterAuthError if the user is not allowed to send the request.
        """

    def control(
        self, application_id: str, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS
    ) -> dict[str, Any]:
        """Send a control request to the master of a running application; return the master's answer.

        See ``runtime/am/web/control.py``. Idempotent. Raises the errors of ``ask_master``.
        """
        return dict(printable_json(self.ask_master(application_id, f"control/{action}", seconds, body=body)))

    def task_log(self, application_id: str, task: str, max_bytes: int, *, seconds: float = CONTROL_SECONDS) -> bytes:
        """Return the last output of a task (such as worker:0) from the master of a running application.

        The text begins at the start of a line. Raises the errors of ``ask_master``, and MasterOutOfReach if the task
        has no output.
        """
        path = f"logs/{contract.path_of_task(task)}?bytes={max_bytes}"
        return bytes(self.ask_master(application_id, path, seconds, is_text=True))

    def task_output(
        self, application_id: str, task: str, attempt: int | None, after: int, *, seconds: float = CONTROL_SECONDS
    ) -> OutputPiece:
        """Return the output of one container of a task from byte ``after`` on, with the job's secrets masked.

        ``attempt`` is the number of the container, or None for the newest. Raises the errors of ``ask_master``, and
        MasterOutOfReach if the master does not have this output.
        """
        try:
            answer = self.ask_master(application_id, output_request(task, attempt, after), seconds)
        except UnexpectedAnswer as error:
            raise MasterOutOfReach(str(error)) from error
        return _read_answer(answer, OutputPiece, f"the master of {application_id} sent invalid output")

    def master_status(self, application_id: str, *, seconds: float = CONTROL_SECONDS) -> JobStatus:
        """Return the job's status from the master of a running application, without reading ``status.json``.

        Raises the errors of ``ask_master``.
        """
        answer = printable_json(self.ask_master(application_id, "status", seconds))
        status = _read_answer(answer, JobStatus, f"the master of {application_id} sent an invalid status")
        return bounded_status(status)

    def task_story(self, application_id: str, task: str, *, seconds: float = CONTROL_SECONDS) -> TaskStory:
        """Return the newest state transitions of a task of a running application, with their reasons.

        Raises the errors of ``ask_master``, and UnexpectedAnswer if the job has no such task.
        """
        answer = self.ask_master(application_id, f"{STORY_PATH}{contract.path_of_task(task)}", seconds)
        return _read_answer(printable_json(answer), TaskStory, f"the master of {application_id} sent an invalid story")

    @abstractmethod
    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Limit the time of the application: the cluster kills it after ``seconds``, also if no client watches.

        The call shortens an existing limit, and extends it only with ``prolong``. Do nothing if the application has
        ended or is unknown.
        """

    def pages(self, application_id: str) -> Pages:
        """Return the application's pages. This also works right after its submission, before the pages exist."""
        return Pages()

    @abstractmethod
    def am_log(self, application_id: str, max_bytes: int) -> str:
        """Return the end of the application master's own output, for a master that died without a message.

        Return at most ``max_bytes`` bytes, or an empty string if there is no output.
        """

    @abstractmethod
    def forget(self, application_id: str) -> None:
        """Remove this machine's files of an application that has ended. Idempotent; does nothing on YARN."""

    @abstractmethod
    def access(self, application_id: str, job: JobSpec | None = None) -> YarnAccess | LocalAccess:
        """Return the settings with which the application master accesses this cluster and serves its job."""

    def client_configuration(self) -> dict[str, str]:
        """Return the properties that Hadoop clients on the nodes need, or {} if the cluster hides them or has none."""
        return {}

    @abstractmethod
    def master_lost_after(self) -> float:
        """Return the seconds without an application master after which the cluster will not start another master.

        This is longer than the cluster needs to notice a master's death and to start the next master.
        """

    @property
    @abstractmethod
    def user(self) -> str:
        """The user that applications run as."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. Idempotent."""


T = TypeVar("T")


def _read_answer(answer: Any, kind: type[T], problem: str) -> T:
    try:
        return from_plain(answer, kind)
    except CodecError as error:
        raise UnexpectedAnswer(f"{problem}: {error}") from error


_POLL = 0.5  # seconds between the first and the second check
_PAUSE_GROWTH = 1.2


def wait_for_end(
    look: Callable[[], Application | None], seconds: float, *, longest_pause: float = _POLL
) -> Application | None:
    """Wait up to ``seconds`` for the application to end. Return it if it still runs, otherwise None.

    ``look`` returns the application, or None if it is unknown. The pauses between two calls of ``look`` grow up to
    ``longest_pause`` seconds.
    """
    deadline, pause = time.monotonic() + seconds, _POLL
    while (application := look()) is not None and not application.is_final:
        if time.monotonic() >= deadline:
            return application
        time.sleep(pause)
        pause = min(pause * _PAUSE_GROWTH, longest_pause)
    return None

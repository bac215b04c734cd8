"""Evaluate an ended application: the task's result, or the exception that fails the task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.errors import logging_errors
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyPermanentFailure, TonyQueueTimeout
from tony_provider.hooks.job import TonyJob
from tony_provider.operators.try_state import TryInfo
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.quantities import count, size, some, span
from tony_provider.runtime.common.text import end_of_log, masked, masked_bytes, one_line, printable
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.outputs.publication import OutputPlace
from tony_provider.runtime.protocol.status import (
    FailureKind,
    FinalStatus,
    JobState,
    JobStatus,
    OutputStatus,
    TaskStatus,
)
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.uris import join
from tony_provider.watching.job_watch import call_through_outage
from tony_provider.watching.task_output import OutputLines, OutputSelection, ShownPositions, kept_output, prefixed

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


def failure(application_id: str, application: Application | None, status: JobStatus | None) -> TonyJobFailed | None:
    """Return the exception that fails the task, or None if the job succeeded.

    The job's own result takes precedence over the state that the cluster reports.
    """
    if status is not None and status.state.is_final:
        return _failure_of_job(application_id, application, status)
    resumed_step = status.resumed_step if status else None
    if application is None:
        return TonyJobFailed(
            f"{application_id} is unknown to the cluster, or no longer known, and left no result",
            application_id=application_id,
            resumed_step=resumed_step,
        )
    if application.state is ApplicationState.KILLED or application.final_status is FinalStatus.KILLED:
        return TonyKilledExternally(
            _killed(application_id, application.diagnostics), application_id=application_id, resumed_step=resumed_step
        )
    if application.final_status is FinalStatus.SUCCEEDED:
        return None
    reason = application.diagnostics.strip() or "the cluster gives no reason"
    return TonyJobFailed(
        f"{application_id} {application.state}: {reason}", application_id=application_id, resumed_step=resumed_step
    )


def _failure_of_job(application_id: str, application: Application | None, status: JobStatus) -> TonyJobFailed | None:
    if status.state is JobState.SUCCEEDED:
        return None
    why = status.failure
    message = (why.full_message if why else status.message) or "no reason was given"
    if status.state is JobState.KILLED or (why is not None and why.kind is FailureKind.KILLED):
        reason = (application.diagnostics if application else "") or message
        return TonyKilledExternally(
            _killed(application_id, reason),
            application_id=application_id,
            failure=why,
            resumed_step=status.resumed_step,
        )
    kind = TonyPermanentFailure if why is not None and why.permanent else TonyJobFailed
    if why is not None and why.kind is FailureKind.QUEUE_TIMEOUT:
        kind = TonyQueueTimeout
    return kind(
        f"{application_id} failed: {message}",
        application_id=application_id,
        failure=why,
        resumed_step=status.resumed_step,
    )


def _killed(application_id: str, diagnostics: str) -> str:
    return f"{application_id} was killed: {diagnostics.strip() or 'the cluster gives no reason'}"


# A program that uses neither directory loses the model in its working directory, although the job succeeds.
_NOTHING_LEFT = (
    f"Nothing was left in {contract.ENV_MODEL_DIR} or {contract.ENV_CHECKPOINT_DIR}: "
    "files in a program's working directory are deleted with its container"
)
_NOTHING_STORED = (
    f"Nothing of this job is on the store, although tasks left files in {contract.ENV_MODEL_DIR} or "
    f"{contract.ENV_CHECKPOINT_DIR}: %s. The warnings above name the reasons. Only the model of rank 0 is stored"
)
_SHOWN = 1000  # characters of the returned value that the task's log shows


@attrs.frozen
class Outcome:
    """Result, logs and cleanup of a try, after its application has ended or if the task does not wait for its end."""

    job: TonyJob
    this_try: TryInfo
    log: Logger

    def deliver(self, application: Application | None, status: JobStatus | None) -> dict[str, Any]:
        """Log and return the task's result, and mark it delivered.

        This is the last step of the task. If the task is cleared afterwards, it trains from the beginning. Raises
        ClusterError and StorageError if the job's returned value cannot be read.
        """
        runs = application is not None and not application.is_final
        returned = None if runs else call_through_outage(self.job.returned, self.log)
        result = JobResult.of(self.job.application_id, self.job.directory, application, status, self._chain(), returned)
        try:
            self.job.mark_delivered(self.this_try.delivered_mark())
        except StorageError as error:
            self.log.warning("Cannot mark the result as delivered, so a cleared task would return it again: %s", error)
        self._log_result(result, status.tasks if status else ())
        return result.to_dict()

    def _log_result(self, result: JobResult, tasks: Sequence[TaskStatus]) -> None:
        """Log the summary at the end of the task: the result, and the locations of its files."""
        if result.final_status is None:
            self.log.info("Not waiting for %s", self.job)
            return
        took = f" after {span(result.duration_s)}" if result.duration_s is not None else ""
        if result.warnings:  # each warning was logged when it occurred
            took += f", with {len(result.warnings)} warning{'s' if len(result.warnings) > 1 else ''} (see above)"
        ended = "has succeeded" if result.final_status == FinalStatus.SUCCEEDED else f"is {result.final_status}"
        log = self.log.warning if result.warnings else self.log.info
        log("%s %s%s", self.job, ended, took)
        if result.returned is not None:
            self.log.info("Returned: %s", _short(one_line(str(result.returned))))
        places = {
            "Model": result.model_dir,
            "Checkpoints": result.checkpoint_chain if result.checkpoint or result.resumed_from else None,
            "Logs": result.logs_dir,
            "Page": result.tracking_url,
        }
        for name, place in places.items():
            if place:
                self.log.info("%s: %s", name, place)
        for name, output in result.outputs.items():
            files = count(output["files"], "file")
            self.log.info("Output %s: %s (%s, %s)", name, output["uri"], files, size(output["bytes"]))
        if not result.has_left_something:
            self._log_unstored(tasks)

    def _log_unstored(self, tasks: Sequence[TaskStatus]) -> None:
        """For a job that stored no files, log how many files its tasks left, unless this number is unknown."""
        if lost := {task.name: task.unstored for task in tasks if task.unstored}:
            self.log.warning(_NOTHING_STORED, some(f"{name} ({count(files, 'file')})" for name, files in lost.items()))
        elif all(task.unstored is not None for task in tasks if task.start):
            self.log.info("%s", _NOTHING_LEFT)

    def _chain(self) -> str | None:
        found = None
        with logging_errors(self.log.warning, "The job's checkpoint chain is unknown"):
            found = self.job.owned_chain()
        return found.uri if found else None

    def log_output(self, status: JobStatus, rest: RemainingOutput, but: str | None = None) -> None:
        """Log the last output of the shown tasks, without lines that the log already contains.

        ``but``: the name of a task whose last output is logged separately.
        """
        for task in rest.tasks(status):
            if task == but:
                continue
            with logging_errors(self.log.warning, "The end of the output of %s cannot be read", task):
                for line in rest.lines(self.job, task):
                    self.log.info("%s", line)

    def log_failure(self, error: TonyJobFailed, status: JobStatus | None, rest: RemainingOutput) -> None:
        """Log the newest checkpoint of a failed job, and the end of its failed task's log.

        If the failed task is unknown, log the end of the application master's log.
        """
        if status is not None:
            self.log_output(status, rest, but=error.failure.task if error.failure else None)
        if status is not None and status.checkpoint is not None:
            self.log.info("The job's newest checkpoint is %s: %s", status.checkpoint.label, status.checkpoint.uri)
        # Only log errors, because the job's failure is more important.
        with logging_errors(self.log.warning, "Cannot read the logs of %s", self.job):
            self._log_end(*self._log_tail(error, rest))

    def _log_end(self, title: str, tail: str | None) -> None:
        if tail is None:
            self.log.info("The end of the output of %s is above", title)
        elif tail:
            self.log.error("Last lines of the output of %s:\n%s", title, printable(tail.replace("\r", "\n")))
        else:
            self.log.warning("No output of %s is stored: it printed nothing, or ended before its log was stored", title)

    def _log_tail(self, error: TonyJobFailed, rest: RemainingOutput) -> tuple[str, str | None]:
        """Return the name of the log's task or master, and the end of the log, or None if it was already shown."""
        task = error.failure.task if error.failure else None
        if task is None:
            return "the application master", self.job.master_log()
        kept = kept_output(self.job, task, rest.told.get(task), TAIL_BYTES)
        if kept is None or not kept.shown:
            return task, masked(task_log_tail(self.job, task), rest.secrets)
        return task, masked_bytes(kept.data, rest.secrets).decode("utf-8", "replace") or None


def with_own_outputs(status: JobStatus, job: JobSpec, log: Logger) -> JobStatus:
    """Return the status without outputs at another location than the job specifies. Log a warning for each of them.

    A job can report any location. An output is also left out if the job was changed after the application was
    submitted.
    """
    wanted = {name: OutputPlace(each.path, status.application_id).uri for name, each in job.outputs.items()}
    own = []
    for output in status.outputs:
        if output.uri == wanted.get(output.name):
            own.append(output)
        else:
            message = (
                "The output %r is left out of the result: the application reports it at %a, but the job specifies %s"
            )
            log.warning(message, output.name, output.uri, wanted.get(output.name, "no such output"))
    return attrs.evolve(status, outputs=own)


def _output(status: OutputStatus) -> dict[str, Any]:
    return {"uri": status.uri, "files": status.files, "bytes": status.bytes}


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


TAIL_BYTES = 8 << 10
REST_LINES = 40  # maximum lines of a task's output that are logged at the end of a job


@attrs.frozen
class RemainingOutput:
    """Selects the output to log at the end of a job: the tasks in ``wish``, without output that was already shown."""

    wish: OutputSelection | None
    told: ShownPositions = attrs.field(factory=dict)
    secrets: Collection[str] = attrs.field(factory=tuple, repr=False)  # values to mask in the output

    def tasks(self, status: JobStatus) -> list[str]:
        """Return the names of the tasks whose output is shown."""
        return self.wish.of(status) if self.wish is not None else []

    def lines(self, job: TonyJob, task: str) -> list[str]:
        """Return the last lines of the task's output that were not shown, at most REST_LINES. Raises StorageError."""
        kept = kept_output(job, task, self.told.get(task), TAIL_BYTES)
        if kept is None:
            return []
        lines = OutputLines(REST_LINES)
        lines.add(masked_bytes(kept.data, self.secrets), kept.missed)
        lines.end()
        return prefixed(task, lines.take(0.0))


def task_log_tail(job: TonyJob, task: str) -> str:
    """Return the last TAIL_BYTES that ``task`` (such as worker:0) printed in its newest container, or an empty text.

    Raises StorageError.
    """
    # Read one byte more than needed: it shows whether the first line is complete.
    return end_of_log(job.kept_log(task, TAIL_BYTES + 1) or b"", TAIL_BYTES).decode("utf-8", "replace")


@attrs.frozen(kw_only=True)
class JobResult:
    """The result of ``TonyTrainOperator``. A key is ``None`` if its value is unknown."""

    application_id: str  # ID of the application, such as application_1700000000000_0001
    application_dir: str  # URI of the store directory with the application's logs, status, events and model
    logs_dir: str  # URI of the directory that contains the last part of each task's output
    model_dir: str | None = None  # URI of the files that the chief or rank 0 left in TONY_MODEL_DIR
    outputs: dict[str, dict[str, Any]] = attrs.field(factory=dict)  # by output name: `uri`, number of `files`, `bytes`
    returned: Any = None  # the value that the chief or rank 0 wrote to TONY_RESULT_FILE, at most 1 MiB; "NaN" for NaN
    checkpoint_chain: str | None = None  # URI of the directory with this training's checkpoints from all attempts
    resumed_from: str | None = None  # checkpoint from which the job last resumed, such as "snapshot 7 (step 120, …)"
    resumed_step: int | None = None  # step from which the job last resumed; None if the step is 0 or unknown
    checkpoint: str | None = None  # newest stored checkpoint, such as "snapshot 7 (step 120, saved 14:03:12 UTC)"
    checkpoint_step: int | None = None  # step of the newest stored checkpoint; None if the step is unknown
    checkpoint_dir: str | None = None  # URI of the newest checkpoint; None if checkpoint.after_success is "remove"
    export_dir: str | None = None  # URI of the newest model that was exported during the training
    export_step: int | None = None  # step of the newest model that was exported during the training
    tracking_url: str | None = None  # URL of the application's page on the cluster
    queue: str | None = None  # YARN queue of the application
    final_status: str | None = None  # SUCCEEDED, or None if the task does not wait for completion
    metrics: dict[str, float | str] = attrs.field(factory=dict)  # newest metrics of the chief or rank 0; "NaN" for NaN
    step: int | None = None  # last step that the chief or rank 0 reported
    total_steps: int | None = None  # total number of steps that the chief or rank 0 last reported
    steps_per_second: float | None = None  # last measured speed of the training, in steps per second
    generation: int | None = None  # number of common starts of all tasks; above 1 after a restart or a suspension
    restarts: int | None = None  # number of restarts of some or all tasks within the application
    duration_s: float | None = None  # number of seconds from the submission to the end of the application
    warnings: list[str] = attrs.field(factory=list)  # warnings, for example about a failed sidecar or a lost checkpoint

    @property
    def has_left_something(self) -> bool:
        """Whether the program has stored files or returned a value. Its printed output does not count."""
        kept = (self.model_dir, self.export_dir, self.checkpoint, self.resumed_from, self.outputs)
        return any(kept) or self.returned is not None

    @classmethod
    def of(
        cls,
        application_id: str,
        application_dir: str,
        application: Application | None,
        status: JobStatus | None,
        chain: str | None = None,
        returned: Any = None,
    ) -> JobResult:
        """Return the result as far as it is known. ``application``: None if the cluster has forgotten it."""
        known: dict[str, Any] = {}
        if status is not None:
            resumed, newest = status.resumed, status.checkpoint
            known.update(
                model_dir=status.model_dir,
                outputs={each.name: _output(each) for each in status.outputs if each.files is not None},
                resumed_from=resumed.label if resumed else None,
                resumed_step=status.resumed_step,
                checkpoint=newest.label if newest else None,
                checkpoint_step=status.checkpoint_step,
                checkpoint_dir=status.checkpoint_dir,
                export_dir=status.export.uri if status.export else None,
                export_step=status.export.step if status.export else None,
                metrics=to_plain(status.metrics),
                step=status.step,
                total_steps=status.total_steps,
                steps_per_second=to_plain(status.steps_per_second),
                generation=status.generation,
                restarts=status.restarts,
                warnings=status.warnings,
                final_status=status.state.value if status.state.is_final else None,
            )
            if status.started_ms and status.finished_ms:
                known["duration_s"] = (status.finished_ms - status.started_ms) / 1000
        if application is not None:
            known.update(tracking_url=application.tracking_url, queue=application.queue or None)
            if application.is_final and application.final_status is not None:
                known.setdefault("final_status", application.final_status.value)
            if application.started_ms and application.finished_ms:
                known["duration_s"] = (application.finished_ms - application.started_ms) / 1000
        return cls(
            application_id=application_id,
            application_dir=application_dir,
            logs_dir=join(application_dir, contract.LOGS_DIR),
            checkpoint_chain=chain,
            returned=returned,
            **known,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dictionary of JSON types."""
        return attrs.asdict(self)

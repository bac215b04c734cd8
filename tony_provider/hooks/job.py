"""TonyJob, the handle of one submitted job: its state, files and output, and the requests to it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.errors import ClusterError, JobRejected, MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.findings import Check, run_in_order
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, ApplicationState, Pages, wait_for_end
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord, read_history, read_specification
from tony_provider.cluster.training import results
from tony_provider.cluster.training.checkpoint_chains import (
    ChainState,
    CheckpointChains,
    KeptCheckpoint,
    kept_checkpoints,
)
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.results import (
    Delivered,
    EventFileSource,
    StatusRefused,
    checked_status,
    event_file_source,
)
from tony_provider.runtime import application as application_store
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, from_plain
from tony_provider.runtime.jobspec.model import GrowRule, JobSpec, resize_refusal
from tony_provider.runtime.jobspec.problems import first_problems
from tony_provider.runtime.protocol.http_messages import OutputPiece, StoredLog, stored_logs
from tony_provider.runtime.protocol.limits import is_below
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus, TaskStory
from tony_provider.runtime.storage import uris

if TYPE_CHECKING:
    from tony_provider.cluster.notebooks import KeptJob, NewestCheckpoint
    from tony_provider.cluster.task_tunnel import TaskTunnel
    from tony_provider.hooks.tony import TonyHook
    from tony_provider.runtime.protocol.status import TokenLife

log = logging.getLogger(__name__)

EXPORT_SECONDS = 300.0  # time for the program to notice the request, and to export and upload its model
_EXPORT_POLL = 1.0  # seconds between two checks for the export
_LONGEST_PAUSE = 5.0  # seconds between two checks whether the job has ended
_TAIL = 64 << 10  # default size of the returned end of a task's output, in bytes


class NoJobDirectory(ClusterError):  # noqa: N818 - named for what is wrong
    """The connection's staging directory has no files of the application."""

    permanent = True


class NotResizable(ClusterError):  # noqa: N818 - named for what is wrong
    """The requested number of tasks is impossible: the job forbids it, or the cluster can never run so many."""

    permanent = True


class NotExported(ClusterError):  # noqa: N818 - named for what is wrong
    """The model was not exported in time; the message names the newest checkpoint, if there is one."""


@attrs.frozen
class TonyJob:
    """Handle of one submitted job, which runs or has ended. ``TonyHook.submit`` and ``TonyHook.job`` return a TonyJob.

    All methods block for a limited time, like the methods of the hook. They raise ClusterError and StorageError.
    Methods that need the job's files raise NoJobDirectory if the staging directory has no files of the application.
    """

    hook: TonyHook = attrs.field(eq=False, repr=False)
    application_id: str
    identity: Identity | None  # the training's identity; None if the staging directory has no files of the job

    def __str__(self) -> str:
        return self.application_id

    @property
    def training(self) -> Identity:
        """Return the identity of the job's training. Raises NoJobDirectory."""
        if self.identity is None:
            raise NoJobDirectory(
                f"{self} has no directory in {self.hook.layout.root}; check that the job was submitted with this "
                "connection"
            )
        return self.identity

    @property
    def directory(self) -> str:
        """Return the URI of the directory with the job's status, logs and model. Raises NoJobDirectory."""
        return self.hook.layout.application_dir(self.training, self.application_id)

    # -- state -------------------------------------------------------------------------------------------------------

    def application(self) -> Application | None:
        """Return the cluster's report on the application, or None if the cluster does not know the application."""
        return self.hook.application(self.application_id)

    def status(self, *, may_have_ended: bool = True) -> JobStatus | None:
        """Return the result of the job if the job has ended, otherwise its status. See ``TonyHook.job_status``."""
        return self.hook.job_status(self.training, self.application_id, may_have_ended=may_have_ended)

    def master_status(self, *, seconds: float = CONTROL_SECONDS) -> JobStatus:
        """Return the job's status as its running master reports it. See ``Cluster.master_status``.

        If the staging directory has no files of the job, the status contains no locations. Raises UnexpectedAnswer,
        also if the status contains locations outside the application's own directories.
        """
        status = self.hook.get_conn().master_status(self.application_id, seconds=seconds)
        try:
            return checked_status(status, None if self.identity is None else self.directory)
        except StatusRefused as error:
            raise UnexpectedAnswer(f"the master of {self} reports an invalid status: {error}") from error

    def story(self, task: str, *, seconds: float = CONTROL_SECONDS) -> TaskStory:
        """Return the newest state transitions of a task of the running job. See ``Cluster.task_story``."""
        return self.hook.get_conn().task_story(self.application_id, task, seconds=seconds)

    def wait(self, seconds: float | None = None) -> JobStatus | None:
        """Wait until the job has ended, and return its result.

        Return None if the job left no result, for example because YARN killed the job.

        :param seconds: maximum number of seconds to wait. None means no limit.

        Raises TimeoutError if the job still runs after this time. Unlike the operator, this method does not refresh the
        job's HDFS tokens. For long jobs, call ``refresh_store_token``.
        """
        limit = math.inf if seconds is None else seconds
        if wait_for_end(self.application, limit, longest_pause=_LONGEST_PAUSE) is not None:
            raise TimeoutError(f"{self} has not ended within {seconds:g} s")
        status = self.status()
        return status if status is not None and status.state.is_final else None

    def pages(self) -> Pages:
        """Return the application's web addresses for users. The addresses are valid from the submission on."""
        return self.hook.opened.pages(self.application_id, self.directory)

    # -- records -----------------------------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        """Return the labels of the submission, which show its origin, or {} if the labels are no longer known."""
        return results.labels(self.hook.storage(), self.directory)

    def specification(self, missing: list[str]) -> SpecificationRecord | None:
        """Return the job as it was submitted, from one small file. If it is unknown, add the reason to ``missing``."""
        return read_specification(self.hook.storage(), self.directory, missing)

    def history(self) -> JobHistory:
        """Return all stored records of the job. The attribute ``missing`` describes each unreadable record.

        This method reads many small files, which takes some seconds for a large job.
        """
        return read_history(self.hook.storage(), self.directory)

    def returned(self) -> Any:
        """Return the value that the successful job wrote to ``TONY_RESULT_FILE``, or None if the job wrote no value.

        Raises RecordUnreadable, a ClusterError, if the file is not JSON.
        """
        return results.returned(self.hook.storage(), self.directory)

    def mark_delivered(self, mark: Delivered) -> None:
        """Record on the store that Airflow has the result. A task that is cleared after this call trains again."""
        results.mark_delivered(self.hook.storage(), self.directory, mark)

    def event_files(self) -> EventFileSource:
        """Return the location of the job's event files on the store, and a name for display.

        Raises RecordUnreadable, a ClusterError, if a file of the training's checkpoint chains cannot be read.
        """
        return event_file_source(self.hook.storage(), self.hook.layout, self.training, self.application_id)

    def has_event_files(self) -> bool:
        """Return whether the store has event files of the job. Raises StorageError, and errors of ``event_files``."""
        return self.hook.storage().exists(self.event_files().uri)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def owned_chain(self) -> ChainState | None:
        """Return the checkpoint chain that the job owns and may commit to, or None if another job owns the chain."""
        return self._chains().owned_by(self.application_id)

    def chain(self) -> ChainState | None:
        """Return the chain that the job owns, otherwise the training's newest chain, or None if it has no chain."""
        return self.owned_chain() or self._chains().newest()

    def checkpoints(self) -> list[KeptCheckpoint]:
        """Return the committed checkpoints of the job's chain, the newest first."""
        chain = self.chain()
        return kept_checkpoints(self.hook.storage(), chain.uri) if chain is not None else []

    def newest_checkpoint(self) -> NewestCheckpoint | None:
        """Return the newest complete checkpoint of the job's training, or None if it has no complete checkpoint."""
        from tony_provider.cluster.notebooks import newest_checkpoint

        return newest_checkpoint(self.hook.storage(), self.chain())

    def _chains(self) -> CheckpointChains:
        return CheckpointChains(self.hook.storage(), self.hook.layout, self.training)

    # -- output ------------------------------------------------------------------------------------------------------

    def logs(self, task: str, max_bytes: int = _TAIL, *, seconds: float = CONTROL_SECONDS) -> bytes | None:
        """Return the last bytes of a task's output, or None if the task has no output.

        The output comes from the stored log of the task's newest container. If no log is stored, the output comes from
        the master of the running job.

        :param task: name of the task, such as ``worker:0``.
        :param seconds: maximum number of seconds to wait for the master's answer.
        """
        kept = self.kept_log(task, max_bytes)
        if kept is not None:
            return kept
        application = self.application()
        if application is None or application.is_final:
            return None
        return self.hook.get_conn().task_log(self.application_id, task, max_bytes, seconds=seconds)

    def kept_log(self, task: str, max_bytes: int) -> bytes | None:
        """Return the end of the stored log of the task's newest container, or None if no log is stored."""
        newest = self.newest_log(task)
        if newest is None:
            return None
        return newest.read(max(0, newest.size - max_bytes), max_bytes)  # the file may grow

    def stored_logs(self, task: str | None = None) -> list[StoredLog]:
        """Return the stored logs of one task, or of all tasks if ``task`` is None. Each task's oldest log is first."""
        found = stored_logs(self.hook.storage(), uris.join(self.directory, contract.LOGS_DIR))
        prefix = "" if task is None else contract.log_prefix(task)
        logs = [log for log in found.values() if log.name.startswith(prefix)]
        return sorted(logs, key=lambda log: [(len(part), part) for part in log.name.split(".")])

    def newest_log(self, task: str) -> StoredLog | None:
        """Return the stored log of the task's newest container, or None if no log is stored."""
        return next(reversed(self.stored_logs(task)), None)

    def output(self, task: str, attempt: int | None, after: int, *, seconds: float = CONTROL_SECONDS) -> OutputPiece:
        """Return a running task's output after the first ``after`` bytes. See ``Cluster.task_output``."""
        return self.hook.get_conn().task_output(self.application_id, task, attempt, after, seconds=seconds)

    def master_log(self, max_bytes: int = 16 << 10) -> str:
        """Return the end of the application master's own output as text, or "" if the output is not available."""
        return self.hook.get_conn().am_log(self.application_id, max_bytes)

    # -- requests ----------------------------------------------------------------------------------------------------

    def control(self, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS) -> dict[str, Any]:
        """Send a control request to the running job's master, and return its answer. See ``TonyHook.control``."""
        return self.hook.control(self.application_id, action, body, seconds=seconds)

    def stop(self, reason: str, *, grace: float | None = None, seconds: float = CONTROL_SECONDS) -> dict[str, Any]:
        """Ask the job to end, and return the master's answer.

        The job's programs end within the grace period. Then the last files are copied to the store.

        :param grace: grace period of the programs in seconds. If None, the job's own grace period applies.
        :param seconds: maximum number of seconds to wait for the master's answer.
        """
        order: dict[str, Any] = {"reason": reason} if grace is None else {"reason": reason, "grace": grace}
        return self.control("stop", order, seconds=seconds)

    def kill(self, reason: str) -> None:
        """End the application immediately, without a last checkpoint. Do nothing if the application has ended."""
        self.hook.kill(self.application_id, reason)

    def limit(self, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Let the cluster end the application if it still runs after ``seconds``. See ``Cluster.limit``."""
        self.hook.get_conn().limit(self.application_id, seconds, diagnostics, prolong=prolong)

    def checkpoint(self, reason: str) -> dict[str, Any]:
        """Ask the job's programs to save a checkpoint, and return the master's answer. The job continues."""
        return self.control("checkpoint", {"reason": reason})

    def suspend(self, reason: str) -> dict[str, Any]:
        """Ask the job to save a checkpoint and to release its containers, and return the master's answer."""
        return self.control("suspend", {"reason": reason})

    def resume(self, reason: str) -> dict[str, Any]:
        """Ask a suspended job to continue, and return the master's answer."""
        return self.control("resume", {"reason": reason})

    def resize(self, tasks: Mapping[str, int], reason: str) -> dict[str, Any]:
        """Change the number of tasks of the running job.

        :param tasks: new number of tasks for each task type, such as ``{"worker": 4}``.

        Return a mapping with two keys. ``before`` contains the previously requested numbers of tasks. ``state`` is the
        state of the job.

        Raises NotResizable, a ClusterError, if the job does not allow the change, or if the cluster could never run so
        many tasks. The method then sends no request.
        """
        if self.identity is not None:
            self._check_resize(tasks)
        return self.control("resize", {"tasks": dict(tasks), "reason": reason})

    def _check_resize(self, counts: Mapping[str, int]) -> None:
        """Check that the job could have these numbers of tasks by type if nothing else ran on the cluster.

        If the job's specification is missing or unreadable, only log a warning, because only the job's master can
        decide then. Raises NotResizable.
        """
        from tony_provider.cluster.checks.job_checks import CLUSTER, expect_no_problems

        missing: list[str] = []
        kept = self.specification(missing)
        try:
            job = None if kept is None else from_plain(kept.job, JobSpec, ignore_unknown=True)
        except CodecError as error:
            job, missing = None, [str(error)]
        if job is None:
            log.warning(
                "Cannot check in advance whether the cluster has room for the requested tasks: %s", "; ".join(missing)
            )
            return
        if problem := resize_refusal(job, counts):
            raise NotResizable(problem)
        try:
            check = Check(CLUSTER, partial(self.hook.get_conn().check, resized(job, counts)))
            expect_no_problems(run_in_order([check]))
        except JobRejected as error:
            wanted = ", ".join(f"{name}={number}" for name, number in counts.items())
            raise NotResizable(
                f"{wanted} is not possible on this cluster: {'; '.join(first_problems(error.problems))}"
            ) from error

    def export(self, reason: str, *, seconds: float = EXPORT_SECONDS) -> ExportedModel:
        """Request an export of the running job's model, and wait up to ``seconds`` for the export. The job continues.

        Return the exported model's directory on the store (``uri``), and the model's step (``step``).

        Raises NotExported, a ClusterError, if the job ends, if the export fails, or if the program exports no model in
        time.
        """
        export = self._wait_for_export(reason, seconds)
        directory = self.directory if self.identity else None
        if directory is None or not is_below(export.uri, directory):
            raise UnexpectedAnswer(
                f"the master of {self} reports an export at {export.uri!a}, which does not lie below "
                f"{directory or 'a directory of the staging directory'}"
            )
        return export

    def _wait_for_export(self, reason: str, seconds: float) -> ExportedModel:
        deadline = time.monotonic() + seconds
        asked_ms = self.control("export", {"reason": reason})["asked_ms"]
        instead = ""
        while True:
            status = self._status_or_result()
            if status is not None:
                newest, request = status.checkpoint, status.export_request
                instead = f". Its newest checkpoint is {newest.label}: {newest.uri}" if newest and newest.uri else ""
                if status.export is not None and status.export.asked_ms >= asked_ms:
                    return status.export
                if request is not None and request.asked_ms == asked_ms and request.problem:
                    raise NotExported(f"{self}: {request.problem}{instead}")
                if status.state.is_final:
                    raise NotExported(f"{self} has ended before its model was exported{instead}")
            if time.monotonic() + _EXPORT_POLL > deadline:
                break
            time.sleep(_EXPORT_POLL)
        raise NotExported(
            f"the model of {self} was not exported within {seconds:g} s. The request remains; a program that "
            f"never checks for requests (tony_sdk.export_requested) exports nothing{instead}"
        )

    def _status_or_result(self) -> JobStatus | None:
        """Return the job's status or result, or None if no master answers, for example between two masters."""
        try:
            return self.master_status()
        except MasterOutOfReach:
            application = self.application()
            if application is not None and not application.is_final:
                return None
            ended = self.status() if self.identity else None
            if ended is None or not ended.state.is_final:
                raise
            return ended

    def tunnel(
        self,
        task: str,
        port: int = 0,
        *,
        local_port: int = 0,
        report: Callable[[str], None] = lambda news: None,
        over: threading.Event | None = None,
    ) -> TaskTunnel:
        """Return a tunnel to a server that runs in a task of the job.

        The tunnel is a context manager. Its attribute ``port`` is its local port.

        :param task: name of the task, such as ``worker:0``.
        :param port: port on which the task's program listens. 0 selects the first port that is assigned to the task
            (``TONY_PORT``).
        :param local_port: port of the tunnel on this machine's loopback interface. 0 selects a free port.
        :param report: function that receives progress messages for users. Another thread calls this function.
        :param over: event that cancels the attempt to open the tunnel.

        Only the application's owner and users who may modify the application can connect.
        """
        from tony_provider.cluster.task_tunnel import MasterOfTunnel, TaskTunnel, expect_running
        from tony_provider.cluster.token_refresh import read_master_contact

        cluster = self.hook.get_conn()
        expect_running(cluster, self.application_id)
        authority = read_master_contact(self.hook.storage(), self.directory).authority
        master = MasterOfTunnel(cluster, self.application_id, authority)
        return TaskTunnel(master, task, port, local_port=local_port, report=report, over=over)

    def refresh_store_token(self) -> TokenLife | None:
        """Send the running job a new HDFS token, and return the token's lifetime.

        Return None if HDFS requires no tokens. Operators and triggers that wait for the job send tokens automatically.
        Raises MasterOutOfReach if no master accepts the token.
        """
        from tony_provider.cluster.token_refresh import refresh_store_tokens

        return refresh_store_tokens(self.hook.opened, self.directory, self.application_id)

    def clean_up(self) -> None:
        """Do the work that the master of the ended job could not do if it was killed. Idempotent.

        Files that are no longer needed are removed. The results remain, and other programs can read them.
        """
        application_store.clean_up(self.hook.storage(), self.directory)
        application = self.application()
        if application is None or application.state is not ApplicationState.FINISHED:
            application_store.settle(self.hook.storage(), self.directory)
        self.hook.get_conn().forget(self.application_id)

    # -- notebooks ---------------------------------------------------------------------------------------------------

    def job_for_rerun(self, *, confirmed: bool = False) -> KeptJob:
        """Return the job for another run with the files that the store keeps.

        :param confirmed: whether a person has confirmed the job's objects outside the staging directory's cache.

        Raises SourceMissing with the missing files, and Unconfirmed with the objects that a person must confirm.
        """
        from tony_provider.cluster.notebooks import kept_job

        return kept_job(self.hook.storage(), self.directory, self.hook.layout, confirmed=confirmed)

    def keep_notebook_token(self, token: str) -> None:
        """Store the token of a notebook for its owner, until the application ends."""
        from tony_provider.cluster.notebooks import NotebookAccess, write_access

        write_access(self.hook.storage(), self.directory, NotebookAccess(token))

    def notebook_token(self) -> str | None:
        """Return the stored token of a notebook. Return None if the job has ended or is no notebook."""
        from tony_provider.cluster.notebooks import read_access

        access = read_access(self.hook.storage(), self.directory)
        return None if access is None else access.token


def resized(job: JobSpec, counts: Mapping[str, int]) -> JobSpec:
    """Return the job with these numbers of tasks by type, all of them required.

    Its time windows (``windows``) are removed, because the job is already running.
    """
    tasks = {
        name: attrs.evolve(task, instances=counts[name], min_instances=None, max_instances=None, grow=GrowRule.ASKED)
        if name in counts
        else task
        for name, task in job.tasks.items()
    }
    return attrs.evolve(job, tasks=tasks, windows=None)

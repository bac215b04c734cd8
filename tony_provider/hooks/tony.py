"""TonyHook, the interface of operators and triggers to a cluster."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from tony_provider.arguments import DEFAULT_CONN_ID
from tony_provider.cluster.checks.inputs_and_outputs import InputSizes, InputSizeScan
from tony_provider.cluster.checks.job_checks import CLUSTER, POLICY, JobChecks, shared_cache
from tony_provider.cluster.errors import ClusterError, UnexpectedAnswer
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, Cluster, Pages
from tony_provider.cluster.job_control import EXPORT_SECONDS, export_model
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.submission.preparation import SubmissionRequest, with_defaults
from tony_provider.cluster.submission.submitter import Preview, preview, submit
from tony_provider.cluster.training import results
from tony_provider.cluster.training.applications import (
    ApplicationFinder,
    ApplicationRef,
    PreviousApplication,
    previous_application,
)
from tony_provider.cluster.training.checkpoint_chains import ChainState, CheckpointChains, TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout, identity_of
from tony_provider.cluster.training.results import (
    Delivered,
    EventFileSource,
    StatusRefused,
    checked_status,
    event_file_source,
)
from tony_provider.hooks.connection import CONN_TYPE, read_connection
from tony_provider.runtime import application_store
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.http_messages import OutputPiece
from tony_provider.runtime.protocol.limits import is_below
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus, TaskStory
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

if TYPE_CHECKING:  # imported on use, because few processes need them
    from tony_provider.cluster.environments.built_environments import BuiltEnvironments
    from tony_provider.cluster.findings import Finding, Report
    from tony_provider.cluster.garbage import Garbage
    from tony_provider.cluster.notebooks import KeptJob, NewestCheckpoint
    from tony_provider.cluster.records.history import JobHistory
    from tony_provider.cluster.records.summary import PreviousRuns
    from tony_provider.cluster.task_tunnel import TaskTunnel
    from tony_provider.runtime.protocol.status import TokenLife


class TonyHook(BaseHook):
    """Interface to one cluster: YARN, or this machine.

    All methods block and end by deadlines; from asyncio use ``asyncio.to_thread``. They raise ClusterError (see
    ``cluster/errors.py``; its ``permanent`` states whether a retry can help) and StorageError. Close the hook, or use
    it as a context manager.

    :param tony_conn_id: a connection of type ``tony``.
    :param proxy_user: the user to act for. With Kerberos, the cluster must allow the connection's user to impersonate
        this user. Without Kerberos, requests only name this user.
    """

    conn_name_attr = "tony_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = "TonY (training on YARN)"

    def __init__(self, tony_conn_id: str = default_conn_name, proxy_user: str | None = None) -> None:
        super().__init__()
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user

    @functools.cached_property
    def settings(self) -> Settings:
        """Return the connection's settings. Raises ConnectionProblem with instructions to add or fix the connection."""
        return read_connection(self.tony_conn_id, self.proxy_user)

    @functools.cached_property
    def _open(self) -> OpenCluster:
        return open_cluster(self.settings)

    def get_conn(self) -> Cluster:
        """Return the cluster, opened at the first use."""
        return self._open.cluster

    def now(self) -> float:
        """Return the time of the cluster's clock in epoch seconds, according to its latest answer."""
        return time.time() + self._open.cluster.clock_ahead

    def storage(self) -> Storage:
        """Return the store with the staging directory. It belongs to the hook, so do not close it."""
        return self._open.storage

    @property
    def layout(self) -> Layout:
        """Return the paths below the staging directory."""
        return Layout(self._open.staging_dir)

    def identity(
        self, *, dag_id: str, run_id: str, task_id: str, map_index: int = -1, checkpoint_key: str | None = None
    ) -> Identity:
        """Return the identity of a training, which includes the connection's namespace. Sends no request."""
        return identity_of(
            namespace=self.settings.namespace,
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            checkpoint_key=checkpoint_key,
        )

    def expect_servers(self) -> None:
        """Check that servers listen at the connection's addresses, before a job is started.

        All other calls wait for a failover to end, so they fail only after a long time. Raises ClusterUnreachable,
        StagingFailed, within seconds, if no server listens.
        """
        if self.settings.yarn is not None:
            from tony_provider.cluster.checks.servers import expect_servers

            expect_servers(self.settings.yarn)

    def expect_store(self, seconds: float) -> None:
        """Check that the store's servers listen, for readers that do not wait for a failover to end.

        Raises StagingFailed if all NameNodes have refused connections for ``seconds``.
        """
        if self.settings.yarn is not None and self._open.nodes_webhdfs is not None:
            from tony_provider.cluster.checks.servers import expect_store

            expect_store(self.settings.yarn, seconds)

    def check(self, job: JobSpec) -> None:
        """Check the job against the connection's policy and against the cluster. Changes nothing.

        Raises JobRejected with all reasons why the job could never run.
        """
        JobChecks(self._open, with_defaults(job, self.settings)).expect_none(POLICY, CLUSTER)

    def job_findings(
        self,
        job: JobSpec,
        overrides: Mapping[str, Any] | None = None,
        search_path: Sequence[Path] = (),
        file_roots: Sequence[Path] = (),
    ) -> list[Finding]:
        """Return the findings of all checks of a submission that need no secrets. Changes nothing.

        SubmissionRequest describes the arguments.
        """
        roots = self.settings.policy.roots([*search_path, *file_roots])
        return JobChecks(self._open, with_defaults(job, self.settings), search_path, roots, overrides).run()

    def expect_kernel(self, job: JobSpec, search_path: Sequence[Path], file_roots: Sequence[Path] = ()) -> None:
        """Check, as far as possible before a start, that the job's environments can serve a notebook.

        Raises JobRejected if an environment has no Jupyter server or no kernel, SourceMissing for missing sources.
        """
        from tony_provider.cluster.notebooks import expect_kernel

        roots = self.settings.policy.roots([*search_path, *file_roots])
        expect_kernel(self._open, job, search_path, roots)

    def kept_job(self, identity: Identity, application_id: str, *, confirmed: bool = False) -> KeptJob:
        """Return the job of an application, running or ended, for another run with the files that the store keeps.

        :param confirmed: a person has confirmed the job's objects outside of the staging directory's cache.

        Raises SourceMissing, which names what is missing; Unconfirmed, which lists the unconfirmed objects.
        """
        from tony_provider.cluster.notebooks import kept_job

        directory = self.application_dir(identity, application_id)
        return kept_job(self.storage(), directory, self.layout, confirmed=confirmed)

    def trained_so_far(self, identity: Identity, application_id: str) -> NewestCheckpoint | None:
        """Return the newest complete checkpoint of the application's training, or None if there is none."""
        from tony_provider.cluster.notebooks import trained_so_far

        return trained_so_far(self.storage(), self.layout, identity, application_id)

    def keep_notebook_token(self, identity: Identity, application_id: str, token: str) -> None:
        """Store the token of a notebook for its owner, until the application ends."""
        from tony_provider.cluster.notebooks import NotebookAccess, write_access

        write_access(self.storage(), self.application_dir(identity, application_id), NotebookAccess(token))

    def notebook_token(self, identity: Identity, application_id: str) -> str | None:
        """Return the stored token of a notebook, or None if it has ended or the application is not a notebook."""
        from tony_provider.cluster.notebooks import read_access

        access = read_access(self.storage(), self.application_dir(identity, application_id))
        return None if access is None else access.token

    def input_figures(self, job: JobSpec, seconds: float) -> dict[str, InputSizes | str]:
        """Return the size of each input of the job, or why it is unknown after ``seconds``. Changes nothing."""
        return InputSizeScan(job, self.storage(), self.layout.root, seconds).figures()

    def submit(self, request: SubmissionRequest, *, before_submit: Callable[[str], object] | None = None) -> str:
        """Check the job, stage its files, start it, and return the application id. After an error nothing remains.

        Every other running application of this training is ended first, so that only one does the work.

        :param before_submit: called with the application id just before the application can exist, to record the id. An
            exception from it prevents the submission.

        Raises JobRejected and SourceMissing before anything is staged, StagingFailed, SubmissionRefused.
        """
        from tony_provider.hooks.connection import mask_of

        return submit(self._open, request, before_submit, mask=mask_of(request.secrets))

    def preview(self, request: SubmissionRequest) -> Preview:
        """Return what ``submit`` would do and request, from the same code and with the same errors. Changes nothing."""
        return preview(self._open, request)

    def previous_application(self, identity: Identity, *, remembered: str | None = None) -> PreviousApplication | None:
        """Return the training's latest application and its outcome, or None if there is none.

        :param remembered: id of an application to use if the store has none.
        """
        return previous_application(self.get_conn(), self.storage(), self.layout, identity, remembered=remembered)

    def chain(self, identity: Identity, application_id: str) -> ChainState | None:
        """Return the checkpoint chain to which this application may commit, or None if another one owns it."""
        return CheckpointChains(self.storage(), self.layout, identity).owned_by(application_id)

    def newest_application(self, identity: Identity) -> str | None:
        """Return the id of the training's latest application on the store. It may not be submitted yet."""
        return self.owners(identity).newest().owner.application_id or None

    def owners(self, identity: Identity) -> TrainingOwners:
        """Return the training's owners: the applications that were submitted for it, and the tries that wait."""
        return TrainingOwners(self.storage(), self.layout.job_dir(identity))

    def find(self, identity: Identity) -> list[Application]:
        """Return the training's applications that have not ended, newest first."""
        return self._finder().live_of(identity)

    def live(self) -> list[Application]:
        """Return all TonY applications of this hook's user that have not ended, newest first. Sends one request."""
        return self.get_conn().live()

    def application_ref(self, *, application_id: str = "", tag: str = "") -> ApplicationRef | None:
        """Return the application with this id, or the newest one with this tag, or None if it is unknown.

        ApplicationFinder defines whose applications are included.
        """
        finder = self._finder()
        return finder.of_application(application_id) if application_id else finder.of_tag(tag)

    def trainings(self) -> Iterator[Identity]:
        """Yield the identities of all trainings that have a directory in the staging directory."""
        return self._finder().identities()

    def application_ids(self, identity: Identity) -> list[str]:
        """Return the ids of the training's applications that have a directory, the newest last."""
        return self._finder().ids_of(identity)

    def _finder(self) -> ApplicationFinder:
        return ApplicationFinder(self.get_conn(), self.storage(), self.layout)

    def garbage(self, models: Sequence[str] = (), *, history_ms: int | None = None) -> Garbage:
        """Return the remains of old trainings and unused built environments, to list and remove.

        ``models``: where models are published in addition to the staging directory. ``history_ms``: see Garbage.
        """
        from tony_provider.cluster.garbage import Garbage

        local = self.settings.local
        excluded = [str(uris.parse(str(local.root)))] if local is not None else []
        return Garbage(self.get_conn(), self.storage(), self.layout, models, excluded, history_ms)

    def built_environments(self) -> BuiltEnvironments:
        """Return the Python environments from `airflow tony env build` in the staging directory's cache."""
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        return BuiltEnvironments(self.storage(), self.layout)

    def shared_environments(self) -> BuiltEnvironments | None:
        """Return the environments in the cache that users share, or None if the connection has no such cache."""
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        cache = shared_cache(self._open)
        return None if cache is None else BuiltEnvironments(self.storage(), Layout(cache.root), shared=True)

    def application(self, application_id: str) -> Application | None:
        """Return the cluster's report on the application, or None if the cluster does not know it (anymore)."""
        return self.get_conn().application(application_id)

    def application_dir(self, identity: Identity, application_id: str) -> str:
        """Return the URI of the directory with the application's status, logs and model."""
        return self.layout.application_dir(identity, application_id)

    def job_status(self, identity: Identity, application_id: str, *, may_have_ended: bool = True) -> JobStatus | None:
        """Return the job's result if it has ended, otherwise its status, or None if its master has not written any yet.

        :param may_have_ended: False if the cluster reports that it runs, so that the result need not be checked.

        Raises RecordUnreadable, a ClusterError, if the file is not a status.
        """
        directory = self.application_dir(identity, application_id)
        return results.job_status(self.storage(), directory, may_have_ended=may_have_ended)

    def labels(self, identity: Identity, application_id: str) -> dict[str, str]:
        """Return the origin of the application from its submission, or {} if it is no longer known."""
        return results.labels(self.storage(), self.application_dir(identity, application_id))

    def history(self, identity: Identity, application_id: str) -> JobHistory:
        """Return all kept records of an application, running or ended. Its ``missing`` lists missing records.

        Reads many small files: some seconds for large jobs.
        """
        from tony_provider.cluster.records.history import read_history

        return read_history(self.storage(), self.application_dir(identity, application_id))

    def event_files(self, identity: Identity, application_id: str) -> EventFileSource:
        """Return the location of the application's event files on the store, and a name for display.

        Raises RecordUnreadable, a ClusterError, if a file of the training's checkpoint chains cannot be read.
        """
        return event_file_source(self.storage(), self.layout, identity, application_id)

    def former_runs(self, labels: Mapping[str, str]) -> PreviousRuns:
        """Return the record of the latest applications, over all runs, of the DAG's task that these labels name.

        Return an empty record for labels without a task. Raises RecordUnreadable, a ClusterError, if the file is
        invalid.
        """
        from tony_provider.cluster.records.summary import PreviousRuns, read_previous_runs, task_identity

        task = task_identity(self.settings.namespace, labels)
        return PreviousRuns() if task is None else read_previous_runs(self.storage(), self.layout, task)

    def keep_former_runs(self, labels: Mapping[str, str], runs: PreviousRuns) -> None:
        """Store the record of the latest applications of the task that these labels name, if they name one."""
        from tony_provider.cluster.records.summary import task_identity, write_previous_runs

        if (task := task_identity(self.settings.namespace, labels)) is not None:
            write_previous_runs(self.storage(), self.layout, task, runs)

    def returned(self, identity: Identity, application_id: str) -> Any:
        """Return the value that a successful job wrote to ``TONY_RESULT_FILE``, or None if it wrote nothing.

        Raises RecordUnreadable, a ClusterError, if the file is not JSON.
        """
        return results.returned(self.storage(), self.application_dir(identity, application_id))

    def mark_delivered(self, identity: Identity, application_id: str, mark: Delivered) -> None:
        """Record on the store that Airflow has the result. A task that is cleared after this trains again."""
        results.mark_delivered(self.storage(), self.application_dir(identity, application_id), mark)

    def pages(self, identity: Identity, application_id: str) -> Pages:
        """Return the application's web addresses for users, valid from its submission."""
        return self._open.pages(application_id, self.application_dir(identity, application_id))

    def kill(self, application_id: str, diagnostics: str) -> None:
        """End the application immediately. Idempotent; see ``Cluster.kill``."""
        self.get_conn().kill(application_id, diagnostics)

    def control(
        self, application_id: str, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS
    ) -> dict[str, Any]:
        """Send a control request to the master of a running application; see ``Cluster.control``.

        Actions: ``stop`` (``{"reason": …, "grace": seconds}``), ``suspend``, ``resume``, ``checkpoint`` and ``export``
        (``{"reason": …}``).
        """
        return self.get_conn().control(application_id, action, body, seconds=seconds)

    def resize(self, application_id: str, tasks: Mapping[str, int], reason: str) -> dict[str, Any]:
        """Change the number of a running job's tasks by type: ``{"worker": 4}``.

        Return the previous or previously requested numbers (``before``), and the state of the job (``state``). Raises
        NotResizable, a ClusterError, before any request if the job does not allow this or the cluster could never run
        it.
        """
        from tony_provider.cluster.job_control import check_resize

        found = self.application_ref(application_id=application_id)
        if found and found.identity:
            directory = self.application_dir(found.identity, application_id)
            check_resize(self.get_conn(), self.storage(), directory, tasks)
        return self.control(application_id, "resize", {"tasks": dict(tasks), "reason": reason})

    def renew_store_token(self, identity: Identity, application_id: str) -> TokenLife | None:
        """Send a running application a new HDFS token. Return its lifetime.

        Return None if HDFS requires no tokens. Operators and triggers that wait for the application do this
        automatically. Raises MasterOutOfReach if no master accepts the token.
        """
        from tony_provider.cluster.token_refresh import renew_store_token

        return renew_store_token(self._open, self.application_dir(identity, application_id), application_id)

    def tunnel(
        self,
        identity: Identity,
        application_id: str,
        task: str,
        port: int = 0,
        *,
        local_port: int = 0,
        tell: Callable[[str], None] = lambda news: None,
        over: threading.Event | None = None,
    ) -> TaskTunnel:
        """Return a tunnel to a server in a task of a running application: a context manager with its local ``port``.

        :param task: such as ``worker:0``.
        :param port: on which the task's program listens; 0: the first port that it received (``TONY_PORT``).
        :param local_port: of this machine's loopback interface; 0: any free port.
        :param tell: receives progress messages for users, from another thread.
        :param over: event that cancels the opening of the tunnel.

        Only the application's owner and users with the right to modify it can connect.
        """
        from tony_provider.cluster.task_tunnel import TaskTunnel, expect_running
        from tony_provider.cluster.token_refresh import read_master_contact

        expect_running(self.get_conn(), application_id)
        about = read_master_contact(self.storage(), self.application_dir(identity, application_id))
        return TaskTunnel(
            self.get_conn(), application_id, about.authority, task, port, local_port=local_port, tell=tell, over=over
        )

    def export(self, application_id: str, reason: str, *, seconds: float = EXPORT_SECONDS) -> ExportedModel:
        """Request an export of a running job's model, and wait up to ``seconds`` for it. The job continues.

        Return its directory on the store (``uri``) and its ``step``. Raises NotExported, a ClusterError, if there is
        none: the program does not check for requests, the job ends, or the export fails.
        """
        found = self.application_ref(application_id=application_id)
        export = export_model(self.get_conn(), application_id, reason, seconds, lambda: self._result_of(application_id))
        directory = self.application_dir(found.identity, application_id) if found and found.identity else None
        if directory is None or not is_below(export.uri, directory):
            raise UnexpectedAnswer(
                f"the master of {application_id} reports an export at {export.uri!a}, which does not lie below "
                f"{directory or 'a directory of the staging directory'}"
            )
        return export

    def _result_of(self, application_id: str) -> JobStatus | None:
        found = self.application_ref(application_id=application_id)
        return self.job_status(found.identity, application_id) if found and found.identity else None

    def task_log(self, application_id: str, task: str, max_bytes: int, *, seconds: float = CONTROL_SECONDS) -> bytes:
        """Return the end of a running task's output; see ``Cluster.task_log``."""
        return self.get_conn().task_log(application_id, task, max_bytes, seconds=seconds)

    def task_output(
        self, application_id: str, task: str, attempt: int | None, after: int, *, seconds: float = CONTROL_SECONDS
    ) -> OutputPiece:
        """Return a task's output after the first ``after`` bytes; see ``Cluster.task_output``."""
        return self.get_conn().task_output(application_id, task, attempt, after, seconds=seconds)

    def master_status(
        self, identity: Identity | None, application_id: str, *, seconds: float = CONTROL_SECONDS
    ) -> JobStatus:
        """Return the job's status as its running master reports it; see ``Cluster.master_status``.

        ``identity`` is None if the staging directory has no directory of the application. Then the status has no
        locations. Raises UnexpectedAnswer also for a status with locations outside of the application's own
        directories.
        """
        status = self.get_conn().master_status(application_id, seconds=seconds)
        try:
            return checked_status(status, None if identity is None else self.application_dir(identity, application_id))
        except StatusRefused as error:
            raise UnexpectedAnswer(f"the status of the master of {application_id} is refused: {error}") from error

    def task_story(self, application_id: str, task: str, *, seconds: float = CONTROL_SECONDS) -> TaskStory:
        """Return the newest state transitions of a running job's task; see ``Cluster.task_story``."""
        return self.get_conn().task_story(application_id, task, seconds=seconds)

    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Set a limit: the cluster ends the application if it still runs after ``seconds``; see ``Cluster.limit``."""
        self.get_conn().limit(application_id, seconds, diagnostics, prolong=prolong)

    def clean_up(self, identity: Identity, application_id: str) -> None:
        """Remove files that an ended application no longer needs, in case its master died before it could do so.

        Its results remain. Idempotent.
        """
        application_store.clean_up(self.storage(), self.application_dir(identity, application_id))
        self.get_conn().forget(application_id)

    def log_tail(self, application_id: str, max_bytes: int = 16 << 10) -> str:
        """Return the end of the application master's own output as text, or "" if it is not available."""
        return self.get_conn().am_log(application_id, max_bytes)

    def test_connection(self) -> tuple[bool, str]:
        """Return a short summary of ``diagnose`` for Airflow's "Test" button, within 10 seconds."""
        try:
            report = self.diagnose()
        except ClusterError as error:
            return False, f"Looked from host {socket.gethostname()}: {error}"
        return report.is_good, str(report)

    def diagnose(self) -> Report:
        """Check everything that a job needs from the cluster, within 10 seconds. Starts nothing.

        Raises ConnectionProblem if the connection is missing or invalid.
        """
        from tony_provider.cluster.checks.doctor import diagnose

        return diagnose(self.settings)

    def close(self) -> None:
        """Close all connections. Idempotent; the hook opens them again when it is used."""
        if (opened := self.__dict__.pop("_open", None)) is not None:
            opened.close()

    def __enter__(self) -> TonyHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

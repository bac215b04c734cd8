"""TonyHook: everything that operators and triggers do with a cluster goes through here."""

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
from tony_provider.cluster.checks.job_checks import InputSizes, InputSizeScan, check_inputs
from tony_provider.cluster.errors import ClusterError, UnexpectedAnswer
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, Cluster, Pages
from tony_provider.cluster.job_control import EXPORT_SECONDS, export_model
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.sources import SourceFinder
from tony_provider.cluster.submission.preparation import (
    SubmissionRequest,
    check_policy,
    shared_cache,
    suitable_environments,
    with_defaults,
)
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
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

if TYPE_CHECKING:  # imported where they are used, as few processes do
    from tony_provider.cluster.environments.built_environments import BuiltEnvironments
    from tony_provider.cluster.findings import Report
    from tony_provider.cluster.garbage import Garbage, OldEnvironments
    from tony_provider.cluster.notebooks import KeptJob, NewestCheckpoint
    from tony_provider.cluster.records.history import JobHistory
    from tony_provider.cluster.records.summary import PreviousRuns
    from tony_provider.cluster.task_tunnel import TaskTunnel
    from tony_provider.runtime.protocol.status import TokenLife


class TonyHook(BaseHook):
    """The door to one cluster that trains: YARN, or this machine.

    All methods block and end by deadlines; from asyncio use ``asyncio.to_thread``. They raise ClusterError (see
    ``cluster/errors.py``; its ``permanent`` says whether a retry can help) and StorageError. Close the hook, or use it
    as a context manager.

    :param tony_conn_id: a connection of type ``tony``.
    :param proxy_user: act for this user, whom the cluster must let the connection's user impersonate (Kerberos), or be
        this user (clusters without it).
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
        """The connection's settings. Raises ConnectionProblem, which says how to add or mend it."""
        return read_connection(self.tony_conn_id, self.proxy_user)

    @functools.cached_property
    def _open(self) -> OpenCluster:
        return open_cluster(self.settings)

    def get_conn(self) -> Cluster:
        """The cluster itself, opened when it is first needed."""
        return self._open.cluster

    def now(self) -> float:
        """The time by the cluster's clock, in epoch seconds, as far as its last answer tells it."""
        return time.time() + self._open.cluster.clock_ahead

    def storage(self) -> Storage:
        """The store that the staging directory is in; it belongs to the hook, do not close it."""
        return self._open.storage

    @property
    def layout(self) -> Layout:
        """The paths below the staging directory."""
        return Layout(self._open.staging_dir)

    def identity(
        self, *, dag_id: str, run_id: str, task_id: str, map_index: int = -1, checkpoint_key: str | None = None
    ) -> Identity:
        """The identity of a training; the connection's namespace is part of it. Asks nobody."""
        return identity_of(
            namespace=self.settings.namespace,
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            checkpoint_key=checkpoint_key,
        )

    def expect_servers(self) -> None:
        """Check that somebody listens where the connection says, before a job is begun.

        Every other call outlasts a failover, and so takes long to give up. Raises ClusterUnreachable, StagingFailed,
        within seconds, when nobody does.
        """
        if self.settings.yarn is not None:
            from tony_provider.cluster.checks.servers import expect_servers

            expect_servers(self.settings.yarn)

    def expect_store(self, seconds: float) -> None:
        """Check that somebody listens where the store is, for readers who do not wait for a failover to end.

        Raises StagingFailed when all NameNodes have refused connections for so many seconds.
        """
        if self.settings.yarn is not None and self._open.nodes_webhdfs is not None:
            from tony_provider.cluster.checks.servers import expect_store

            expect_store(self.settings.yarn, seconds)

    def check(self, job: JobSpec, overrides: Mapping[str, Any] | None = None) -> None:
        """Check the job against what the connection allows, and against the cluster. Changes nothing.

        :param overrides: what was laid over the job: the connection may say which keys may be.

        Raises JobRejected with everything that would keep the job from ever running.
        """
        job = with_defaults(job, self.settings)
        check_policy(job, self.settings, overrides)
        self.get_conn().check(job)

    def check_sources(self, job: JobSpec, search_path: Sequence[Path], file_roots: Sequence[Path] = ()) -> None:
        """Check the job's files, archives, environment and inputs. SubmissionRequest describes the arguments.

        Raises SourceMissing for what is not there, JobNotAllowed for files that the connection does not allow,
        JobRejected for an environment that is not for the nodes.
        """
        roots = self.settings.policy.roots([*search_path, *file_roots])
        sources = SourceFinder(self.storage(), self.layout.root, search_path, roots).find(job)
        suitable_environments(self._open, job, sources)
        check_inputs(job, self.storage(), self.layout.root)

    def expect_kernel(self, job: JobSpec, search_path: Sequence[Path], file_roots: Sequence[Path] = ()) -> None:
        """Check, before anything is started, that the job's environments can serve a notebook, as far as that is known.

        Raises JobRejected where one has no Jupyter server or no kernel; else as ``check_sources``.
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
        """The newest whole checkpoint of the training that the application is of; None: it has none."""
        from tony_provider.cluster.notebooks import trained_so_far

        return trained_so_far(self.storage(), self.layout, identity, application_id)

    def keep_notebook_token(self, identity: Identity, application_id: str, token: str) -> None:
        """Keep the token of a notebook where its owner finds it, as long as the application lives."""
        from tony_provider.cluster.notebooks import NotebookAccess, write_access

        write_access(self.storage(), self.application_dir(identity, application_id), NotebookAccess(token))

    def notebook_token(self, identity: Identity, application_id: str) -> str | None:
        """The token that was kept of a notebook; None where there is none: it has ended, or never was one."""
        from tony_provider.cluster.notebooks import read_access

        access = read_access(self.storage(), self.application_dir(identity, application_id))
        return None if access is None else access.token

    def input_figures(self, job: JobSpec, seconds: float) -> dict[str, InputSizes | str]:
        """How much each input of the job holds, or why that cannot be said within so many seconds. Changes nothing."""
        return InputSizeScan(job, self.storage(), self.layout.root, seconds).figures()

    def submit(self, request: SubmissionRequest, *, before_submit: Callable[[str], object] | None = None) -> str:
        """Check the job, stage its files, and start it; returns the application id. On any error nothing is left.

        Every other application of this training that still runs is ended first, so that one does the work.

        :param before_submit: called with the application id at the last moment before the application can exist, to
            keep it somewhere; what it raises keeps the application from being submitted.

        Raises JobRejected and SourceMissing before anything is staged, StagingFailed, SubmissionRefused.
        """
        from tony_provider.hooks.connection import mask_of

        return submit(self._open, request, before_submit, mask=mask_of(request.secrets))

    def preview(self, request: SubmissionRequest) -> Preview:
        """What ``submit`` would do and ask for, found by the same code; errors are its own. Changes nothing."""
        return preview(self._open, request)

    def previous_application(self, identity: Identity, *, remembered: str | None = None) -> PreviousApplication | None:
        """The application that the training has started last, and what became of it; None when there is none.

        :param remembered: an application id to look at where the store knows of none.
        """
        return previous_application(self.get_conn(), self.storage(), self.layout, identity, remembered=remembered)

    def chain(self, identity: Identity, application_id: str) -> ChainState | None:
        """The checkpoint chain in which this application may commit; None when another one has taken it over."""
        return CheckpointChains(self.storage(), self.layout, identity).owned_by(application_id)

    def newest_application(self, identity: Identity) -> str | None:
        """The id of the application that the training was given last, by the store; it may not be submitted yet."""
        return self.owners(identity).newest().owner.application_id or None

    def owners(self, identity: Identity) -> TrainingOwners:
        """Return the training's owners: the applications that were submitted for it, and the tries that wait."""
        return TrainingOwners(self.storage(), self.layout.job_dir(identity))

    def find(self, identity: Identity) -> list[Application]:
        """The training's applications that have not ended, newest first."""
        return self._finder().live_of(identity)

    def live(self) -> list[Application]:
        """Every application of ours and of this hook's user that has not ended, newest first; in one request."""
        return self.get_conn().live()

    def application_ref(self, *, application_id: str = "", tag: str = "") -> ApplicationRef | None:
        """The application with this id, or the newest one with this tag; None when nobody knows it.

        See ApplicationFinder for whose applications count.
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
        """What old trainings have left, to be listed and removed.

        ``models``: where models are published beside the staging directory. ``history_ms``: see Garbage.
        """
        from tony_provider.cluster.garbage import Garbage

        local = self.settings.local
        without = [str(uris.parse(str(local.root)))] if local is not None else []
        return Garbage(self.get_conn(), self.storage(), self.layout, models, without, history_ms)

    def built_environments(self) -> BuiltEnvironments:
        """The Python environments that `airflow tony env build` has put into the staging directory's cache."""
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        return BuiltEnvironments(self.storage(), self.layout)

    def shared_environments(self) -> BuiltEnvironments | None:
        """Those of the cache that users share; None where the connection names none."""
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        cache = shared_cache(self._open)
        return None if cache is None else BuiltEnvironments(self.storage(), Layout(cache.root), shared=True)

    def old_environments(self) -> OldEnvironments:
        """Those of them that no job has used for long, to be listed and removed."""
        from tony_provider.cluster.garbage import OldEnvironments

        return OldEnvironments(self.get_conn(), self.built_environments())

    def application(self, application_id: str) -> Application | None:
        """What the cluster says of the application; None when it does not know it (any more)."""
        return self.get_conn().application(application_id)

    def application_dir(self, identity: Identity, application_id: str) -> str:
        """The URI of the directory that the application's status, logs and model are in."""
        return self.layout.application_dir(identity, application_id)

    def job_status(self, identity: Identity, application_id: str, *, may_have_ended: bool = True) -> JobStatus | None:
        """The job's result if it has ended, else its status; None when its master has not written any yet.

        :param may_have_ended: False: the cluster says that it runs, so that there is no result to be looked for.

        Raises RecordUnreadable, a ClusterError, when what is there is not a status.
        """
        directory = self.application_dir(identity, application_id)
        return results.job_status(self.storage(), directory, may_have_ended=may_have_ended)

    def labels(self, identity: Identity, application_id: str) -> dict[str, str]:
        """Where the application came from, as its submission said; empty when that cannot be told any more."""
        return results.labels(self.storage(), self.application_dir(identity, application_id))

    def history(self, identity: Identity, application_id: str) -> JobHistory:
        """All that is kept of an application, running or ended; its ``missing`` names what is not there.

        Reads many small files: some seconds for large jobs.
        """
        from tony_provider.cluster.records.history import read_history

        return read_history(self.storage(), self.application_dir(identity, application_id))

    def event_files(self, identity: Identity, application_id: str) -> EventFileSource:
        """Where on the store the application's event files are, and what people call it.

        Raises RecordUnreadable, a ClusterError, when a file of the training's checkpoint chains cannot be read.
        """
        return event_file_source(self.storage(), self.layout, identity, application_id)

    def former_runs(self, labels: Mapping[str, str]) -> PreviousRuns:
        """What is known of the last applications of the task of a DAG that these labels name, over all its runs.

        Nothing for labels that name none. Raises RecordUnreadable, a ClusterError, for what is no such record.
        """
        from tony_provider.cluster.records.summary import PreviousRuns, read_previous_runs, task_identity

        task = task_identity(self.settings.namespace, labels)
        return PreviousRuns() if task is None else read_previous_runs(self.storage(), self.layout, task)

    def keep_former_runs(self, labels: Mapping[str, str], runs: PreviousRuns) -> None:
        """Keep what is known of the last applications of the task that these labels name, if they name one."""
        from tony_provider.cluster.records.summary import task_identity, write_previous_runs

        if (task := task_identity(self.settings.namespace, labels)) is not None:
            write_previous_runs(self.storage(), self.layout, task, runs)

    def returned(self, identity: Identity, application_id: str) -> Any:
        """What a job that has succeeded left in ``TONY_RESULT_FILE``; None when it left nothing.

        Raises RecordUnreadable, a ClusterError, when what is there is no JSON.
        """
        return results.returned(self.storage(), self.application_dir(identity, application_id))

    def mark_delivered(self, identity: Identity, application_id: str, mark: Delivered) -> None:
        """Note on the store that Airflow has the result: a task that is cleared from now on trains anew."""
        results.mark_delivered(self.storage(), self.application_dir(identity, application_id), mark)

    def pages(self, identity: Identity, application_id: str) -> Pages:
        """The addresses where people look at the application in a browser, from its submission on."""
        return self._open.pages(application_id, self.application_dir(identity, application_id))

    def kill(self, application_id: str, diagnostics: str) -> None:
        """End the application at once. Idempotent; see ``Cluster.kill``."""
        self.get_conn().kill(application_id, diagnostics)

    def control(
        self, application_id: str, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS
    ) -> dict[str, Any]:
        """Ask the master of a running application to ``stop`` it (``{"reason": …, "grace": seconds}``), to ``suspend``
        or ``resume`` it, or for a ``checkpoint`` or an ``export`` now (``{"reason": …}``); see ``Cluster.control``.
        """
        return self.get_conn().control(application_id, action, body, seconds=seconds)

    def resize(self, application_id: str, tasks: Mapping[str, int], reason: str) -> dict[str, Any]:
        """Have a running job go on with so many tasks of these types: ``{"worker": 4}``.

        Returns how many there were, or were to be, before (``before``), and what the job was doing (``state``). Raises
        NotResizable, a ClusterError, before anything is asked when the job does not allow that, or the cluster could
        never hold it.
        """
        from tony_provider.cluster.job_control import check_resize

        found = self.application_ref(application_id=application_id)
        if found and found.identity:
            directory = self.application_dir(found.identity, application_id)
            check_resize(self.get_conn(), self.storage(), directory, tasks)
        return self.control(application_id, "resize", {"tasks": dict(tasks), "reason": reason})

    def renew_store_token(self, identity: Identity, application_id: str) -> TokenLife | None:
        """Bring a running application a newer HDFS token; returns how long it holds.

        None where HDFS asks for no tokens. Whoever waits for the application does this by itself. Raises
        MasterOutOfReach when no master takes it.
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
        """A tunnel to a server of a task of a running application; a context manager, whose ``port`` leads there.

        :param task: such as ``worker:0``.
        :param port: that the task's program listens on, 0: the first that it was given (``TONY_PORT``).
        :param local_port: of this machine's loopback, 0: any that is free.
        :param tell: gets news for people, from another thread.
        :param over: once it is set, nobody waits any more for a tunnel that is not open yet.

        Only the application's owner and those who may modify it are let through.
        """
        from tony_provider.cluster.task_tunnel import TaskTunnel, expect_running
        from tony_provider.cluster.token_refresh import read_master_contact

        expect_running(self.get_conn(), application_id)
        about = read_master_contact(self.storage(), self.application_dir(identity, application_id))
        return TaskTunnel(
            self.get_conn(), application_id, about.authority, task, port, local_port=local_port, tell=tell, over=over
        )

    def export(self, application_id: str, reason: str, *, seconds: float = EXPORT_SECONDS) -> ExportedModel:
        """Ask a running job for an export of its model, and wait so long for it; the job goes on.

        Returns where it is (``uri``, a directory on the store) and of which ``step``. Raises NotExported, a
        ClusterError, when none comes: the program never looks for requests, the job ends, or the export fails.
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
        """The end of what a running task has printed so far; see ``Cluster.task_log``."""
        return self.get_conn().task_log(application_id, task, max_bytes, seconds=seconds)

    def task_output(
        self, application_id: str, task: str, attempt: int | None, after: int, *, seconds: float = CONTROL_SECONDS
    ) -> OutputPiece:
        """What a task has printed after so many bytes of it; see ``Cluster.task_output``."""
        return self.get_conn().task_output(application_id, task, attempt, after, seconds=seconds)

    def master_status(
        self, identity: Identity | None, application_id: str, *, seconds: float = CONTROL_SECONDS
    ) -> JobStatus:
        """Return the job's status as its running master reports it; see ``Cluster.master_status``.

        ``identity`` is None if the staging directory has no directory of the application. Then the status names no
        places.
        Also raises UnexpectedAnswer for a status that names places outside of the application's own directories.
        """
        status = self.get_conn().master_status(application_id, seconds=seconds)
        try:
            return checked_status(status, None if identity is None else self.application_dir(identity, application_id))
        except StatusRefused as error:
            raise UnexpectedAnswer(f"the status of the master of {application_id} is refused: {error}") from error

    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Have the cluster end the application should it still be there after ``seconds``; see ``Cluster.limit``."""
        self.get_conn().limit(application_id, seconds, diagnostics, prolong=prolong)

    def clean_up(self, identity: Identity, application_id: str) -> None:
        """Remove what an application that has ended no longer needs, should its master not have lived to do so.

        Its results stay. Idempotent.
        """
        application_store.clean_up(self.storage(), self.application_dir(identity, application_id))
        self.get_conn().forget(application_id)

    def log_tail(self, application_id: str, max_bytes: int = 16 << 10) -> str:
        """The end of the application master's own output, as text; empty when there is none to be had."""
        return self.get_conn().am_log(application_id, max_bytes)

    def test_connection(self) -> tuple[bool, str]:
        """Airflow's "Test" button: what ``diagnose`` finds, in a few lines; within 10 seconds."""
        try:
            report = self.diagnose()
        except ClusterError as error:
            return False, f"Looked from host {socket.gethostname()}: {error}"
        return report.is_good, str(report)

    def diagnose(self) -> Report:
        """Look at all that a job needs of the cluster; within 10 seconds, whatever is silent. Nothing is started.

        Raises ConnectionProblem for a connection that is not there, or not even worth a look.
        """
        from tony_provider.cluster.checks.doctor import diagnose

        return diagnose(self.settings)

    def close(self) -> None:
        """Drop connections. Idempotent; the hook opens them again when it is used."""
        if (opened := self.__dict__.pop("_open", None)) is not None:
            opened.close()

    def __enter__(self) -> TonyHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

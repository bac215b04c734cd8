"""TonyHook, the interface of operators and triggers to a cluster."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from tony_provider.arguments import DEFAULT_CONN_ID
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, Cluster
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster
from tony_provider.cluster.settings import Settings, with_defaults
from tony_provider.cluster.training import results
from tony_provider.cluster.training.checkpoint_chains import TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout, identity_of
from tony_provider.cluster.training.results import (
    ApplicationFinder,
    ApplicationRef,
    PreviousApplication,
    TaskApplication,
    previous_application,
)
from tony_provider.hooks.connection import CONN_TYPE, mask_of, read_connection
from tony_provider.hooks.job import EXPORT_SECONDS, TonyJob
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

if TYPE_CHECKING:  # imported on use, because few processes and commands need them
    from tony_provider.cluster.checks.job_checks import InputSizes
    from tony_provider.cluster.environments.built_environments import BuiltEnvironments
    from tony_provider.cluster.findings import Finding, Report
    from tony_provider.cluster.garbage import Garbage
    from tony_provider.cluster.records.history import SuspectNode
    from tony_provider.cluster.records.staleness import ModelReport
    from tony_provider.cluster.records.summary import PreviousRuns
    from tony_provider.cluster.submission.preparation import SubmissionRequest
    from tony_provider.cluster.submission.submitter import Preview


class TonyHook(BaseHook):
    """Interface to one cluster: YARN, or this machine. ``submit`` and ``job`` return a TonyJob, the handle of a job.

    All methods block for a limited time. From asyncio, call them with ``asyncio.to_thread``. The methods raise
    ClusterError and StorageError. The attribute ``permanent`` of a ClusterError states whether a retry is useless, see
    ``cluster/errors.py``. Close the hook, or use the hook as a context manager.

    :param tony_conn_id: ID of a connection of type ``tony``.
    :param proxy_user: name of the user that the hook impersonates. With Kerberos, the cluster must allow the
        connection's user to impersonate this user. Without Kerberos, requests only contain the name of this user.
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
    def opened(self) -> OpenCluster:
        """Return the cluster and the store, opened at the first use."""
        return open_cluster(self.settings)

    def get_conn(self) -> Cluster:
        """Return the cluster, opened at the first use."""
        return self.opened.cluster

    def now(self) -> float:
        """Return the time of the cluster's clock in epoch seconds, according to its latest answer."""
        return time.time() + self.opened.cluster.clock_ahead

    def storage(self) -> Storage:
        """Return the store that contains the staging directory. The hook closes the store, so do not close it."""
        return self.opened.storage

    @property
    def layout(self) -> Layout:
        """Return the paths of the directories and files below the staging directory."""
        return Layout(self.opened.staging_dir)

    def identity(
        self, *, dag_id: str, run_id: str, task_id: str, map_index: int = -1, checkpoint_key: str | None = None
    ) -> Identity:
        """Return the identity of a training. This method sends no request.

        The identity consists of the connection's namespace and the arguments.
        """
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

        Raises ClusterUnreachable or StagingFailed within seconds if no server listens. Other methods wait for the end
        of a failover, so they would fail only after a long time.
        """
        if self.settings.yarn is not None:
            from tony_provider.cluster.checks.daemons import expect_servers

            expect_servers(self.settings.yarn)

    def expect_store(self, seconds: float) -> None:
        """Check that the store's servers listen, for readers that do not wait for a failover to end.

        Raises StagingFailed if all NameNodes have refused connections for ``seconds``.
        """
        if self.settings.yarn is not None and self.opened.nodes_webhdfs is not None:
            from tony_provider.cluster.checks.daemons import expect_store

            expect_store(self.settings.yarn, seconds)

    def check(self, job: JobSpec) -> None:
        """Check the job against the connection's policy and against the cluster. The check changes nothing.

        Raises JobRejected with all reasons why the job could never run.
        """
        from tony_provider.cluster.checks.job_checks import CLUSTER, POLICY, JobChecks

        JobChecks(self.opened, with_defaults(job, self.settings)).expect_none(POLICY, CLUSTER)

    def job_findings(
        self,
        job: JobSpec,
        overrides: Mapping[str, Any] | None = None,
        search_path: Sequence[Path] = (),
        file_roots: Sequence[Path] = (),
    ) -> list[Finding]:
        """Run all checks of a submission that need no secrets, and return their findings. The checks change nothing.

        SubmissionRequest describes the arguments.
        """
        from tony_provider.cluster.checks.job_checks import JobChecks

        roots = self.settings.policy.roots([*search_path, *file_roots])
        return JobChecks(self.opened, with_defaults(job, self.settings), search_path, roots, overrides).run()

    def expect_kernel(self, job: JobSpec, search_path: Sequence[Path], file_roots: Sequence[Path] = ()) -> None:
        """Check, as far as possible before a start, that the job's environments can serve a notebook.

        Raises JobRejected if an environment has no Jupyter server or no kernel, and SourceMissing if a source of an
        environment is missing.
        """
        from tony_provider.cluster.notebooks import expect_kernel

        roots = self.settings.policy.roots([*search_path, *file_roots])
        expect_kernel(self.opened, job, search_path, roots)

    def input_figures(self, job: JobSpec, seconds: float) -> dict[str, InputSizes | str]:
        """Return the size of each input of the job, or the reason why the size is unknown after ``seconds``."""
        from tony_provider.cluster.checks.job_checks import input_sizes

        return input_sizes(job, self.storage(), self.layout.root, seconds)

    def submit(
        self, request: SubmissionRequest, *, before_submit: Callable[[TonyJob], object] = lambda job: None
    ) -> TonyJob:
        """Check the job, stage its files, start the job, and return its handle. After an error, no files remain.

        Every other running application of this training is ended first, so that only one application does the work.

        :param before_submit: function that is called with the job before the cluster receives the application, so that
            the caller can record the ID. If this function raises an exception, the job is not submitted.

        Raises JobRejected and SourceMissing before any file is staged. Also raises StagingFailed and SubmissionRefused.
        """
        from tony_provider.cluster.submission.submitter import submit

        def begin(application_id: str) -> None:
            before_submit(TonyJob(self, application_id, request.identity))

        application_id = submit(self.opened, request, begin, mask=mask_of(request.secrets))
        return TonyJob(self, application_id, request.identity)

    def job(self, application_id: str, identity: Identity | None = None) -> TonyJob:
        """Return the handle of a running or ended job.

        :param identity: identity of the job's training. If None, this method queries the cluster and the store for the
            identity.
        """
        if identity is None and (found := self.application_ref(application_id=application_id)) is not None:
            identity = found.identity
        return TonyJob(self, application_id, identity)

    def preview(self, request: SubmissionRequest) -> Preview:
        """Return the files and requests of ``submit``, but change nothing. Raises the same errors as ``submit``."""
        from tony_provider.cluster.submission.submitter import preview

        return preview(self.opened, request)

    def previous_application(self, identity: Identity, *, remembered: str | None = None) -> PreviousApplication | None:
        """Return the training's latest application and its outcome, or None if the training has no application.

        :param remembered: ID of the application to return if the store has no application of the training.
        """
        return previous_application(self.get_conn(), self.storage(), self.layout, identity, remembered=remembered)

    def newest_application(self, identity: Identity) -> str | None:
        """Return the ID of the training's latest application on the store, even if it is not submitted yet."""
        return self.owners(identity).newest().owner.application_id or None

    def owners(self, identity: Identity) -> TrainingOwners:
        """Return the training's owners: its submitted applications, and the tries of its task that wait for them."""
        return TrainingOwners(self.storage(), self.layout.job_dir(identity))

    def find(self, identity: Identity) -> list[Application]:
        """Return the training's applications that have not ended, newest first."""
        return self._finder().live_of(identity)

    def live(self) -> list[Application]:
        """Return all TonY applications of this hook's user that have not ended, newest first. Sends one request."""
        return self.get_conn().live()

    def application_ref(self, *, application_id: str = "", tag: str = "") -> ApplicationRef | None:
        """Return the application with this ID, or the newest application with this tag. Return None if it is unknown.

        ApplicationFinder defines which users' applications are included.
        """
        finder = self._finder()
        return finder.of_application(application_id) if application_id else finder.of_tag(tag)

    def applications_of_task(self, whose: Mapping[str, str]) -> list[TaskApplication]:
        """Return the applications of a DAG's task, the newest first. See ``ApplicationFinder.of_task``."""
        return self._finder().of_task(self.settings.namespace, whose)

    def trainings(self) -> Iterator[Identity]:
        """Yield the identities of all trainings that have a directory in the staging directory, newest first."""
        return self._finder().identities()

    def application_ids(self, identity: Identity) -> list[str]:
        """Return the IDs of the training's applications that have a directory. The newest ID is the last."""
        return self._finder().ids_of(identity)

    def _finder(self) -> ApplicationFinder:
        return ApplicationFinder(self.get_conn(), self.storage(), self.layout)

    def stale_models(
        self, *, dag_ids: Sequence[str] | None = None, after_ms: int = 0, model: str | None = None
    ) -> list[ModelReport]:
        """Compare the newest model of each training with the data that it read. Oldest models come first.

        ``dag_ids`` selects models of these DAGs, ``after_ms`` (epoch) models that were trained since, and ``model`` the
        training of the model at this URI. Raises ClusterError and StorageError.
        """
        from tony_provider.cluster.records.staleness import StaleModels

        if isinstance(dag_ids, str):
            dag_ids = [dag_ids]
        with closing(
            StaleModels(self.storage(), self.layout, self.settings.namespace, self.opened.metastore)
        ) as models:
            return models.reports(dag_ids=dag_ids, after_ms=after_ms, model=model)

    def garbage(self, models: Sequence[str] = (), *, history_ms: int | None = None) -> Garbage:
        """Return the files of old trainings and of unused built environments, to list and remove.

        ``models`` are directories with published models, in addition to the staging directory. ``history_ms`` is
        described in Garbage.
        """
        from tony_provider.cluster.garbage import Garbage

        local = self.settings.local
        excluded = [str(uris.parse(str(local.root)))] if local is not None else []
        return Garbage(self.get_conn(), self.storage(), self.layout, models, excluded, history_ms)

    def suspect_nodes(self) -> list[SuspectNode]:
        """Return the nodes that lost containers of recent jobs in this staging directory. Raises StorageError."""
        from tony_provider.cluster.records.history import suspect_nodes

        return suspect_nodes(self.storage(), self.layout.lost_nodes_dir, int(self.now() * 1000))

    def built_environments(self) -> BuiltEnvironments:
        """Return the Python environments from `airflow tony env build` in the staging directory's cache."""
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        return BuiltEnvironments(self.storage(), self.layout)

    def shared_environments(self) -> BuiltEnvironments | None:
        """Return the environments in the cache that users share, or None if the connection has no such cache."""
        from tony_provider.cluster.checks.job_checks import shared_cache
        from tony_provider.cluster.environments.built_environments import BuiltEnvironments

        cache = shared_cache(self.opened)
        return None if cache is None else BuiltEnvironments(self.storage(), Layout(cache.root), shared=True)

    def application(self, application_id: str) -> Application | None:
        """Return the cluster's report on an application, or None if the cluster does not know the application."""
        return self.get_conn().application(application_id)

    def job_status(self, identity: Identity, application_id: str, *, may_have_ended: bool = True) -> JobStatus | None:
        """Return the result of an ended job, or the status of a running job.

        Return None if the job's master has not written a status yet.

        :param may_have_ended: set to False if the cluster reports that the job runs. Then only the status is read.

        Raises RecordUnreadable, a ClusterError, if the file on the store is not a valid status.
        """
        directory = self.layout.application_dir(identity, application_id)
        return results.job_status(self.storage(), directory, may_have_ended=may_have_ended)

    def former_runs(self, labels: Mapping[str, str]) -> PreviousRuns:
        """Return the record of the latest applications of a DAG's task, over all runs. ``labels`` identify the task.

        Return an empty record if the labels contain no task. Raises RecordUnreadable, a ClusterError, if the file of
        the record is invalid.
        """
        from tony_provider.cluster.records.summary import PreviousRuns, read_previous_runs, task_identity

        task = task_identity(self.settings.namespace, labels)
        return PreviousRuns() if task is None else read_previous_runs(self.storage(), self.layout, task)

    def keep_former_runs(self, labels: Mapping[str, str], runs: PreviousRuns) -> None:
        """Store the record of the latest applications of the task in ``labels``. Do nothing if they contain no task."""
        from tony_provider.cluster.records.summary import task_identity, write_previous_runs

        if (task := task_identity(self.settings.namespace, labels)) is not None:
            write_previous_runs(self.storage(), self.layout, task, runs)

    def kill(self, application_id: str, diagnostics: str) -> None:
        """End an application immediately. Do nothing if the application has ended or is unknown.

        On YARN, this method does not wait for the end of the application. On the local cluster, it waits.
        """
        self.get_conn().kill(application_id, diagnostics)

    def control(
        self, application_id: str, action: str, body: Mapping[str, Any], *, seconds: float = CONTROL_SECONDS
    ) -> dict[str, Any]:
        """Send a control request to the master of a running application, and return the master's answer.

        All requests are idempotent. The action ``stop`` takes the body ``{"reason": …, "grace": seconds}``. The actions
        ``suspend``, ``resume``, ``checkpoint`` and ``export`` take the body ``{"reason": …}``.

        Raises MasterOutOfReach, a ClusterError, if the master does not answer within ``seconds``.
        """
        return self.get_conn().control(application_id, action, body, seconds=seconds)

    def export(self, application_id: str, reason: str, *, seconds: float = EXPORT_SECONDS) -> ExportedModel:
        """Request an export of a running job's model, and wait for the export. See ``TonyJob.export``."""
        return self.job(application_id).export(reason, seconds=seconds)

    def test_connection(self) -> tuple[bool, str]:
        """Run ``diagnose`` for Airflow's "Test" button, and return a short summary within 10 seconds."""
        try:
            report = self.diagnose()
        except ClusterError as error:
            return False, f"Checked from host {socket.gethostname()}: {error}"
        return report.is_good, str(report)

    def diagnose(self) -> Report:
        """Check everything that a job needs from the cluster, and return the report within 10 seconds.

        This method starts no application. Raises ConnectionProblem if the connection is missing or invalid.
        """
        from tony_provider.cluster.checks.doctor import diagnose

        return diagnose(self.settings)

    def close(self) -> None:
        """Close all connections. You can call this method several times, and use the hook again afterwards."""
        if (opened := self.__dict__.pop("opened", None)) is not None:
            opened.close()

    def __enter__(self) -> TonyHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

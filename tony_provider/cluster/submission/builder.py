"""Build the description of an application, which its containers read, and its submission to the cluster."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs

from tony_provider.cluster.application_secrets import application_secrets, registry_tokens
from tony_provider.cluster.errors import StagingFailed, staging_errors
from tony_provider.cluster.interface import Submission
from tony_provider.cluster.lifetime import zone_offsets
from tony_provider.cluster.sources import LocalSource, Source
from tony_provider.cluster.submission.preparation import PreparedSubmission
from tony_provider.cluster.training.plan import TrainingPlan
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, YarnAccess
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.container_content import PYTHON_ENV_KEY, image_of_master
from tony_provider.runtime.protocol.store_tokens import KEY_SERVER_PREFIX, other_tokens
from tony_provider.runtime.storage.errors import StorageExists


@attrs.frozen
class Resources:
    """The files and archives that containers get from the store."""

    runtime: LocalizedResource
    runtime_pythons: list[str]
    of_tasks: list[LocalizedResource]  # of all tasks
    by_type: dict[str, list[LocalizedResource]]  # of the tasks of each type, in addition to ``of_tasks``
    of_master: list[LocalizedResource]


_OPENING_TRIES = 5  # attempts to open a chain while other tries of the training open theirs


@attrs.define
class SubmissionBuilder(ABC):
    """Builds the submission of one application.

    Subclasses change the store, or only return what a submission would write there. Their methods raise StorageError.
    """

    prepared: PreparedSubmission = attrs.field(repr=False)
    application_id: str

    @abstractmethod
    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        """Stage the sources; return the resources in the same order."""

    @abstractmethod
    def add_store_tokens(self, credentials: Credentials) -> None:
        """On clusters with Kerberos, add the tokens for the store and for other servers that the application names."""

    @abstractmethod
    def take(self, plan: TrainingPlan, description: ApplicationDescription) -> LocalizedResource:
        """Become the owner of the chain, and write the description; return the description's file.

        Raises StorageExists if another try of the training has just opened the chain. The caller then chooses again.
        """

    @staging_errors()
    def build(self) -> Submission:
        """Stage the files, choose and take the checkpoint chain, and return the submission.

        Raises StagingFailed, SourceMissing, ClusterError.
        """
        prepared = self.prepared
        credentials = Credentials(
            registry_tokens(prepared.registries, self.application_id),
            application_secrets(self.application_id, prepared.request.secrets),
        )
        with ThreadPoolExecutor(1, thread_name_prefix="tony-staging") as beside:
            staging = beside.submit(self.stage, prepared.local_sources)
            self.add_store_tokens(credentials)
            plan = prepared.plan()
            resources = resources_of(prepared, staging.result())
        for _ in range(_OPENING_TRIES):
            description = self._describe(plan, resources, credentials)
            try:
                file = self.take(plan, description)
            except StorageExists:
                plan = prepared.plan()  # another try of this training was faster
                continue
            if file.sha256 is not None:
                credentials.secrets[contract.SECRET_DESCRIPTION] = file.sha256.encode()
            tags = [prepared.request.identity.tag, *(tag.lower() for tag in description.job.tags)]
            return Submission(description, file, resources.of_master, credentials, list(dict.fromkeys(tags)))
        raise StagingFailed("other tries of this training keep opening chains of their own; start the task again")

    def _describe(self, plan: TrainingPlan, resources: Resources, credentials: Credentials) -> ApplicationDescription:
        """Return the application's description, which all its containers read, without secrets. Raises ClusterError."""
        opened, request = self.prepared.opened, self.prepared.request
        job, cluster, settings = request.job, opened.cluster, opened.settings
        access = cluster.access(self.application_id, job)
        return ApplicationDescription(
            application_id=self.application_id,
            user=cluster.user,
            job=job,
            application_dir=self.prepared.layout.application_dir(request.identity, self.application_id),
            webhdfs=opened.nodes_webhdfs,
            resources=resources.of_tasks,
            resources_by_type=resources.by_type,
            runtime=resources.runtime,
            runtime_pythons=resources.runtime_pythons,
            python=settings.python,
            yarn=access if isinstance(access, YarnAccess) else None,
            local=access if isinstance(access, LocalAccess) else None,
            master_lost_after=cluster.master_lost_after(),
            shared_checkpoints=self._shared_checkpoints(),
            chain_dir=self.prepared.chain_uri(plan),
            epoch=self.prepared.before.number + 1,
            continues=plan.about.continues,
            warm_start=plan.about.warm_start,
            hadoop=cluster.client_configuration() if job.hadoop else {},
            gpu_dealing=settings.gpu_dealing,
            training=request.identity.name,
            labels=dict(request.labels),
            submitted_ms=epoch_ms(),
            environment=dict(request.environment),
            other_hdfs=opened.other_hdfs,
            zone_offsets=zone_offsets(job.windows.zone, time.time()) if job.windows else [],
            key_server=next(
                (name for name in other_tokens(credentials.secrets) if name.startswith(KEY_SERVER_PREFIX)), ""
            ),
            authority=credentials.secrets[contract.SECRET_CA].decode(),
        )

    def _shared_checkpoints(self) -> str:
        opened, request = self.prepared.opened, self.prepared.request
        if opened.settings.shared_dir is None or not request.job.checkpoint.shared:
            return ""
        return str(opened.settings.shared_dir / f"tony-{opened.cluster.user}" / request.identity.name)


def resources_of(prepared: PreparedSubmission, staged: list[LocalizedResource]) -> Resources:
    """Return the resources of the containers. ``staged`` has the resources of ``local_sources``, in their order."""
    runtime = prepared.runtime
    if isinstance(runtime, LocalSource):
        runtime, staged = staged[0], staged[1:]
    local = zip(prepared.sources.local, staged, strict=True)
    uses: list[tuple[Source, LocalizedResource]] = [
        *local,
        *((each, each.resource) for each in prepared.sources.stored),
    ]
    by_type = {
        task_type: own
        for task_type in prepared.request.job.tasks
        if (own := [resource for source, resource in uses if source.task_type == task_type])
    }
    of_tasks = [resource for source, resource in uses if source.task_type is None]
    pythons = [version_text(each) for each in sorted(prepared.nodes.versions)]
    return Resources(runtime, pythons, of_tasks, by_type, _of_master(prepared, uses))


def _of_master(
    prepared: PreparedSubmission, uses: Sequence[tuple[Source, LocalizedResource]]
) -> list[LocalizedResource]:
    """Return the job's environment for the application master, unless the connection names a Python on the nodes.

    The environment can be large. But if the nodes, or the master's image, have no Python, only the environment can run
    the master.
    """
    content = prepared.environments.get(PYTHON_ENV_KEY)
    named_for_nodes = prepared.opened.settings.python and image_of_master(prepared.request.job) is None
    if named_for_nodes or (content is not None and not content.brings_python):
        return []
    return [resource for source, resource in uses if source.key == PYTHON_ENV_KEY][:1]

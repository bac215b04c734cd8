"""Build the description of an application, which its containers read, and its submission to the cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import attrs

from tony_provider.cluster.application_secrets import application_secrets, registry_tokens
from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.interface import Submission
from tony_provider.cluster.lifetime import zone_offsets
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.sources import LocalSource, Source
from tony_provider.cluster.submission.preparation import PreparedSubmission, SubmissionRequest
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.plan import TrainingPlan
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, YarnAccess
from tony_provider.runtime.checkpoint.training_owner import ChainRecord
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.container_content import PYTHON_ENV_KEY, image_of_master
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.store_tokens import KEY_SERVER_PREFIX, other_tokens
from tony_provider.runtime.storage.errors import StorageError, StorageExists


@attrs.frozen
class Resources:
    """The files and archives that containers get from the store."""

    runtime: LocalizedResource
    runtime_pythons: list[str]
    of_tasks: list[LocalizedResource]  # of all tasks
    by_type: dict[str, list[LocalizedResource]]  # of the tasks of each type, in addition to ``of_tasks``
    of_master: list[LocalizedResource]


@attrs.frozen
class ApplicationSite:
    """The application's id, training, cluster and checkpoint chain."""

    opened: OpenCluster
    layout: Layout
    identity: Identity
    application_id: str
    chain_uri: str
    epoch: int  # its number among the training's owners


def describe(
    request: SubmissionRequest,
    where: ApplicationSite,
    resources: Resources,
    about: ChainRecord,
    credentials: Credentials,
) -> ApplicationDescription:
    """Return the application's description, which all its containers read. It has no secrets. Raises ClusterError."""
    job, cluster = request.job, where.opened.cluster
    access = cluster.access(where.application_id, job)
    return ApplicationDescription(
        application_id=where.application_id,
        user=cluster.user,
        job=job,
        application_dir=where.layout.application_dir(where.identity, where.application_id),
        webhdfs=where.opened.nodes_webhdfs,
        resources=resources.of_tasks,
        resources_by_type=resources.by_type,
        runtime=resources.runtime,
        runtime_pythons=resources.runtime_pythons,
        python=where.opened.settings.python,
        yarn=access if isinstance(access, YarnAccess) else None,
        local=access if isinstance(access, LocalAccess) else None,
        master_lost_after=cluster.master_lost_after(),
        shared_checkpoints=_shared_checkpoints(where, job),
        chain_dir=where.chain_uri,
        epoch=where.epoch,
        continues=about.continues,
        warm_start=about.warm_start,
        hadoop=cluster.client_configuration() if job.hadoop else {},
        gpu_dealing=where.opened.settings.gpu_dealing,
        training=where.identity.name,
        labels=dict(request.labels),
        submitted_ms=epoch_ms(),
        environment=dict(request.environment),
        other_hdfs=where.opened.other_hdfs,
        zone_offsets=zone_offsets(job.windows.zone, time.time()) if job.windows else [],
        key_server=next((name for name in other_tokens(credentials.secrets) if name.startswith(KEY_SERVER_PREFIX)), ""),
        authority=credentials.secrets[contract.SECRET_CA].decode(),
    )


def _shared_checkpoints(where: ApplicationSite, job: JobSpec) -> str:
    root = where.opened.settings.shared_dir
    if root is None or not job.checkpoint.shared:
        return ""
    return str(root / f"tony-{where.opened.cluster.user}" / where.identity.name)


def submission_of(
    where: ApplicationSite,
    description: ApplicationDescription,
    description_file: LocalizedResource,
    resources: Resources,
    credentials: Credentials,
) -> Submission:
    """Return the submission of an application, with its tags and its master's files."""
    return Submission(
        description=description,
        description_file=description_file,
        am_resources=resources.of_master,
        credentials=credentials,
        tags=list(dict.fromkeys([where.identity.tag, *(tag.lower() for tag in description.job.tags)])),
    )


_OPENING_TRIES = 5  # attempts to open a chain while other tries of the training open theirs


@attrs.frozen
class ChosenChain:
    """The checkpoint chain that the plan assigns to the application."""

    uri: str
    plan: TrainingPlan


def _chosen_chain(prepared: PreparedSubmission) -> ChosenChain:
    """Return the chain of a plan for the store's present state. Raises SourceMissing, ClusterError, StagingFailed."""
    plan = prepared.plan()
    if plan.goes_on and plan.newest is not None:
        return ChosenChain(plan.newest.uri, plan)
    return ChosenChain(prepared.chains.uri_after(plan.newest), plan)


class StoreChanges(Protocol):
    """The changes of the store that a submission needs. All methods raise StorageError."""

    @property
    def application_id(self) -> str: ...

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        """Stage the sources; return the resources in the same order."""

    def add_store_tokens(self, credentials: Credentials) -> None:
        """On clusters with Kerberos, add the tokens for the store and for other servers that the application names."""

    def take(self, chain: ChosenChain, description: ApplicationDescription) -> LocalizedResource:
        """Become the owner of the chain, and write the description; return the description's file.

        Raises StorageExists if another try of the training has just opened the chain. The caller then chooses again.
        """


def build_submission(prepared: PreparedSubmission, changes: StoreChanges) -> Submission:
    """Stage the files, choose and take the checkpoint chain, and return the submission.

    Raises StagingFailed, SourceMissing, ClusterError.
    """
    request = prepared.request
    credentials = Credentials(
        registry_tokens(prepared.registries, changes.application_id),
        application_secrets(changes.application_id, request.secrets),
    )
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="tony-staging") as beside:
            staging = beside.submit(changes.stage, prepared.local_sources)
            changes.add_store_tokens(credentials)
            chain = _chosen_chain(prepared)
            resources = resources_of(prepared, staging.result())
        return _written(prepared, changes, resources, credentials, chain)
    except StorageError as error:
        raise StagingFailed(f"the job could not be staged: {error}") from error


def _written(
    prepared: PreparedSubmission,
    changes: StoreChanges,
    resources: Resources,
    credentials: Credentials,
    chain: ChosenChain,
) -> Submission:
    """Take the chain and write the description; return the submission.

    Raises StagingFailed, ClusterError, StorageError.
    """
    request, application_id = prepared.request, changes.application_id
    for _ in range(_OPENING_TRIES):
        where = ApplicationSite(
            prepared.opened, prepared.layout, request.identity, application_id, chain.uri, prepared.before.number + 1
        )
        description = describe(request, where, resources, chain.plan.about, credentials)
        try:
            file = changes.take(chain, description)
        except StorageExists:
            chain = _chosen_chain(prepared)  # another try of this training was faster
            continue
        if file.sha256 is not None:
            credentials.secrets[contract.SECRET_DESCRIPTION] = file.sha256.encode()
        return submission_of(where, description, file, resources, credentials)
    raise StagingFailed("other tries of this training keep opening chains of their own; start the task again")


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

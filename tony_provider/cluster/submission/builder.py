"""The description that an application gets of its job, and the submission that a cluster gets of the application."""

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
from tony_provider.runtime.checkpoint.training_owner import CheckpointChain
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
    of_tasks: list[LocalizedResource]  # of all
    by_type: dict[str, list[LocalizedResource]]  # of the tasks of a type, beside these
    of_master: list[LocalizedResource]


@attrs.frozen
class ApplicationSite:
    """Which application it is, of which training, on which cluster, with which checkpoint chain."""

    opened: OpenCluster
    layout: Layout
    identity: Identity
    application_id: str
    chain_uri: str
    epoch: int  # its number among the owners of the training


def describe(
    request: SubmissionRequest,
    where: ApplicationSite,
    resources: Resources,
    about: CheckpointChain,
    credentials: Credentials,
) -> ApplicationDescription:
    """The description of the application, which every container of it reads: no secret. Raises ClusterError."""
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
    """The submission of an application, with its tags and its master's files."""
    return Submission(
        description=description,
        description_file=description_file,
        am_resources=resources.of_master,
        credentials=credentials,
        tags=list(dict.fromkeys([where.identity.tag, *(tag.lower() for tag in description.job.tags)])),
    )


_OPENING_TRIES = 5  # of a chain, while other tries of the training open theirs


@attrs.frozen
class ChosenChain:
    """The checkpoint chain that the application is to own, by the plan."""

    uri: str
    plan: TrainingPlan


def _chosen_chain(prepared: PreparedSubmission) -> ChosenChain:
    """What the plan says, as the store is just now. Raises SourceMissing, ClusterError, StagingFailed."""
    plan = prepared.plan()
    if plan.goes_on and plan.newest is not None:
        return ChosenChain(plan.newest.uri, plan)
    return ChosenChain(prepared.chains.uri_after(plan.newest), plan)


class StoreChanges(Protocol):
    """What one application needs of the store before it can be submitted. All methods raise StorageError."""

    @property
    def application_id(self) -> str: ...

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        """In their order."""

    def add_store_tokens(self, credentials: Credentials) -> None:
        """By which the application reaches the store and what it names beside it, on clusters with Kerberos."""

    def take(self, chain: ChosenChain, description: ApplicationDescription) -> LocalizedResource:
        """Own the chain, and write the description; returns this file.

        Raises StorageExists when another try of the training has just opened the chain: then choose again.
        """


def build_submission(prepared: PreparedSubmission, changes: StoreChanges) -> Submission:
    """Raises StagingFailed, SourceMissing, ClusterError."""
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
    """The submission, with its description on the store. Raises StagingFailed, ClusterError, StorageError."""
    request, application_id = prepared.request, changes.application_id
    for _ in range(_OPENING_TRIES):
        where = ApplicationSite(
            prepared.opened, prepared.layout, request.identity, application_id, chain.uri, prepared.before.number + 1
        )
        description = describe(request, where, resources, chain.plan.about, credentials)
        try:
            file = changes.take(chain, description)
        except StorageExists:
            chain = _chosen_chain(prepared)  # another try of this training was faster: see what there is now
            continue
        if file.sha256 is not None:
            credentials.secrets[contract.SECRET_DESCRIPTION] = file.sha256.encode()
        return submission_of(where, description, file, resources, credentials)
    raise StagingFailed("other tries of this training keep opening chains of their own; start the task again")


def resources_of(prepared: PreparedSubmission, staged: list[LocalizedResource]) -> Resources:
    """What containers get; ``staged`` is what became of ``local_sources``, in their order."""
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
    """The job's environment for the application master too, unless the connection names a Python on the nodes.

    It can be large; but where the nodes, or the master's image, have no Python of their own, nothing else could run it.
    """
    content = prepared.environments.get(PYTHON_ENV_KEY)
    named_for_nodes = prepared.opened.settings.python and image_of_master(prepared.request.job) is None
    if named_for_nodes or (content is not None and not content.brings_python):
        return []
    return [resource for source, resource in uses if source.key == PYTHON_ENV_KEY][:1]

"""The description that an application gets of its job, and the submission that a cluster gets of the application."""

from __future__ import annotations

import time

import attrs

from tony_provider.cluster.base import Submission
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.cluster.zone_offsets import zone_offsets
from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, YarnAccess
from tony_provider.runtime.checkpoint_chain import CheckpointChain
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.store_token import KEY_SERVER, other_tokens
from tony_provider.runtime.spec.model import JobSpec


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
        key_server=next((name for name in other_tokens(credentials.secrets) if name.startswith(KEY_SERVER)), ""),
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

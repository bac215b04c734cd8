"""The description that an application gets of its job, and the submission that a cluster gets of the application."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tony_provider.cluster.base import Submission
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.sources import is_archived
from tony_provider.cluster.submission_request import SubmissionRequest
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
    of_tasks: list[LocalizedResource]


@attrs.frozen
class ApplicationSite:
    """Which application it is, of which training, on which cluster, with which checkpoint chain."""

    opened: OpenCluster
    layout: Layout
    identity: Identity
    application_id: str
    chain_uri: str


def describe(
    request: SubmissionRequest,
    where: ApplicationSite,
    resources: Resources,
    about: CheckpointChain,
    credentials: Credentials,
) -> ApplicationDescription:
    """The description of the application, which every container of it reads: no secret. Raises ClusterError."""
    job, cluster = request.job, where.opened.cluster
    access = cluster.access(where.application_id, job.queue)
    return ApplicationDescription(
        application_id=where.application_id,
        user=cluster.user,
        job=job,
        application_dir=where.layout.application_dir(where.identity, where.application_id),
        webhdfs=where.opened.nodes_webhdfs,
        resources=resources.of_tasks,
        runtime=resources.runtime,
        python=_interpreters(job, where.opened.settings.python),
        yarn=access if isinstance(access, YarnAccess) else None,
        local=access if isinstance(access, LocalAccess) else None,
        master_lost_after=cluster.master_lost_after(),
        chain_dir=where.chain_uri,
        continues=about.continues,
        warm_start=about.warm_start,
        hadoop=cluster.client_configuration() if job.hadoop else {},
        gpu_dealing=where.opened.settings.gpu_dealing,
        training=where.identity.name,
        labels=dict(request.labels),
        submitted_ms=epoch_ms(),
        environment=dict(request.environment),
        other_hdfs=where.opened.other_hdfs,
        key_server=next((name for name in other_tokens(credentials.secrets) if name.startswith(KEY_SERVER)), ""),
        authority=credentials.secrets[contract.SECRET_CA].decode(),
    )


def submission_of(
    where: ApplicationSite,
    description: ApplicationDescription,
    description_file: LocalizedResource,
    credentials: Credentials,
) -> Submission:
    """The submission of an application, with its tags and its master's files."""
    return Submission(
        description=description,
        description_file=description_file,
        am_resources=[description.runtime, description_file, *_am_environment(description)],
        credentials=credentials,
        tags=list(dict.fromkeys([where.identity.tag, *(tag.lower() for tag in description.job.tags)])),
    )


def _interpreters(job: JobSpec, configured: Sequence[str]) -> list[str]:
    """The Pythons that the launcher tries first: the job's environment, then the connection's."""
    if job.python_env is None:
        return list(configured)
    environment = contract.PYTHON_ENV_DIR if is_archived(job.python_env) else job.python_env.removeprefix("file://")
    return [f"{environment}/bin/python", *configured]


def _am_environment(description: ApplicationDescription) -> list[LocalizedResource]:
    """The job's environment for the application master too, unless the connection names a Python on the nodes.

    It can be large; but where the nodes have no Python of their own, nothing else could run the master.
    """
    found = [resource for resource in description.resources if resource.name == contract.PYTHON_ENV_DIR]
    return found if len(description.python) == 1 else []

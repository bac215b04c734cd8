"""From a request to what the cluster is given, in one way for a submission and for its preview.

What the two differ in is who changes the store: ``StoreChanges`` makes the changes, or only tells what they would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import attrs

from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.cluster.base import Submission
from tony_provider.cluster.description import ApplicationSite, Resources, describe, submission_of
from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.prepared_submission import PreparedSubmission
from tony_provider.cluster.registry_credentials import registry_tokens
from tony_provider.cluster.sources import LocalSource, Source
from tony_provider.cluster.training_plan import TrainingPlan
from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.spec.images import image_of_master
from tony_provider.runtime.spec.python_env import JOBS_OWN
from tony_provider.runtime.storage.errors import StorageError, StorageExists
from tony_provider.runtime.wheel_name import version_text

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
    content = prepared.environments.get(JOBS_OWN)
    named_for_nodes = prepared.opened.settings.python and image_of_master(prepared.request.job) is None
    if named_for_nodes or (content is not None and not content.brings_python):
        return []
    return [resource for source, resource in uses if source.key == JOBS_OWN][:1]

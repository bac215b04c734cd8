"""From a request to what the cluster is given, in one way for a submission and for its preview.

What the two differ in is who changes the store: ``StoreChanges`` makes the changes, or only tells what they would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.cluster.base import Submission
from tony_provider.cluster.description import ApplicationSite, Resources, describe, submission_of
from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.prepared_submission import PreparedSubmission
from tony_provider.cluster.sources import LocalSource
from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.checkpoint_chain import CheckpointChain
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.storage.errors import StorageError


@attrs.frozen
class TakenChain:
    """The checkpoint chain that the application may commit to."""

    uri: str
    about: CheckpointChain  # what its file says


class StoreChanges(Protocol):
    """What one application needs of the store before it can be submitted. All methods raise StorageError."""

    @property
    def application_id(self) -> str: ...

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        """In their order."""

    def take_chain(self) -> TakenChain:
        """Own the one that the plan says."""

    def add_store_tokens(self, credentials: Credentials) -> None:
        """By which the application reaches the store and what it names beside it, on clusters with Kerberos."""

    def write(self, description: ApplicationDescription) -> LocalizedResource: ...


def build_submission(prepared: PreparedSubmission, changes: StoreChanges) -> Submission:
    """Raises StagingFailed, SourceMissing, ClusterError."""
    request = prepared.request
    try:
        resources = _resources(prepared, changes.stage(prepared.local_sources))
        credentials = Credentials(secrets=application_secrets(changes.application_id, request.secrets))
        chain = changes.take_chain()
        where = ApplicationSite(prepared.opened, prepared.layout, request.identity, changes.application_id, chain.uri)
        changes.add_store_tokens(credentials)
        description = describe(request, where, resources, chain.about, credentials)
        description_file = changes.write(description)
        if description_file.sha256 is not None:
            credentials.secrets[contract.SECRET_DESCRIPTION] = description_file.sha256.encode()
    except StorageError as error:
        raise StagingFailed(f"the job could not be staged: {error}") from error
    return submission_of(where, description, description_file, credentials)


def _resources(prepared: PreparedSubmission, staged: list[LocalizedResource]) -> Resources:
    """``staged``: what became of ``local_sources``, in their order."""
    runtime = prepared.runtime
    if isinstance(runtime, LocalSource):
        runtime, staged = staged[0], staged[1:]
    return Resources(runtime, [*staged, *prepared.sources.stored])

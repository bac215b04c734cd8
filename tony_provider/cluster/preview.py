"""What a submission would ask for, with nothing asked for: for people who want to see it first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import attrs

from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.prepared_submission import PreparedSubmission, prepare
from tony_provider.cluster.sources import LocalSource
from tony_provider.cluster.staging import places
from tony_provider.cluster.submission_builder import ChosenChain, build_submission
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.codec import dump_json, to_plain
from tony_provider.runtime.hadoop.tokens import Credentials

# The id that is given at the submission; the cluster is not asked for one.
APPLICATION_ID = "application_0_0000"
_NOT_WRITTEN = 0  # the time of a file that is not on the store yet


@attrs.frozen
class Preview:
    """What a submission would stage, describe and request, as plain JSON."""

    staged: dict[str, str]  # file of this machine -> URI that it is copied to, unless that is there already
    description: dict[str, Any]  # what every container is told
    request: dict[str, Any]  # to the cluster; secrets are masked


def preview(opened: OpenCluster, request: SubmissionRequest) -> Preview:
    """What ``submit`` would make of the request, by its own code. Changes nothing; raises as it does."""
    prepared = prepare(opened, request)
    paper = _ChangesOnPaper(prepared)
    submission = build_submission(prepared, paper)
    staged = {str(source.path): uri for source, uri in places(prepared.layout, prepared.local_sources)}
    return Preview(staged, to_plain(submission.description), opened.cluster.request(submission))


@attrs.frozen
class _ChangesOnPaper:
    """``StoreChanges`` that changes nothing, and tells what would be there."""

    prepared: PreparedSubmission
    application_id: str = APPLICATION_ID

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        return [
            LocalizedResource(source.name, uri, source.size, _NOT_WRITTEN, source.kind, source.sha256)
            for source, uri in places(self.prepared.layout, sources)
        ]

    def add_store_tokens(self, credentials: Credentials) -> None:
        if (tokens := self.prepared.opened.tokens) is not None:
            tokens.pretend(credentials)

    def take(self, chain: ChosenChain, description: ApplicationDescription) -> LocalizedResource:
        uri = self.prepared.description_uri(self.application_id)
        content = dump_json(description)
        sha256 = hashlib.sha256(content).hexdigest()
        return LocalizedResource(contract.APPLICATION_FILE, uri, len(content), _NOT_WRITTEN, sha256=sha256)

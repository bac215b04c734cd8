"""The preview of a submission: exactly what it would ask for, with nothing asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.checkpoint_chains import new_chain
from tony_provider.cluster.credentials import application_secrets
from tony_provider.cluster.description import ApplicationSite, describe, submission_of
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.sources import LocalSource
from tony_provider.cluster.staging import places
from tony_provider.cluster.submitter import Submitter, resources_of, with_runtime
from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage import uris

# The id that is given at the submission; the cluster is not asked for one.
APPLICATION_ID = "application_0_0000"


@attrs.frozen
class Preview:
    """What a submission would stage, describe and request, as plain JSON."""

    staged: dict[str, str]  # file of this machine -> URI that it is copied to, unless that is there already
    description: dict[str, Any]  # what every container is told; the first chain of a training stands for any
    request: dict[str, Any]  # to the cluster; secrets are masked


def preview(
    opened: OpenCluster,
    job: JobSpec,
    *,
    identity: Identity,
    secrets: Mapping[str, str],
    labels: Mapping[str, str],
    search_path: Sequence[Path],
) -> Preview:
    """What a submission with these arguments would do. Changes nothing.

    Raises JobRejected, SourceMissing, ClusterError, StorageError.
    """
    submitter, layout = Submitter(opened), Layout(opened.staging_dir)
    job = submitter.checked(job, secrets)
    sources, runtime = submitter.sources(job, search_path), submitter.runtime()
    local = list(places(layout, with_runtime(runtime, sources)))
    staged = {str(source.path): uri for source, uri in local}
    resources = resources_of(runtime, sources, [_placed(*each) for each in local])
    where = ApplicationSite(opened, layout, identity, APPLICATION_ID, layout.chain_dir(identity, 1))
    description = describe(job, where, resources, labels, new_chain())
    file = uris.join(layout.staging_dir(identity, APPLICATION_ID), contract.APPLICATION_FILE)
    credentials = Credentials(secrets=application_secrets(APPLICATION_ID, secrets))
    about = LocalizedResource(contract.APPLICATION_FILE, file, 0, 0)
    request = opened.cluster.request(submission_of(where, description, about, credentials))
    return Preview(staged, to_plain(description), request)


def _placed(source: LocalSource, uri: str) -> LocalizedResource:
    return LocalizedResource(source.name, uri, source.size, 0, source.kind)

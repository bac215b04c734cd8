"""Prepare a submission: check the request, find the files to stage, and upload them.

``prepare`` changes nothing on the store. A Stager uploads the files to the staging directory's cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.checks.job_checks import JobChecks, local_runtime, refuse_plain_http
from tony_provider.cluster.environments.inspection import NodePythons
from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.cluster.errors import StagingFailed, staging_errors
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.records.history import EnvironmentContent, KeptResource
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.sources import (
    LocalSource,
    Sources,
    sha256_of_stored,
    stored_resource,
)
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, TakenOverError, TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.plan import ChainOrigin, Resume, TrainingPlan, fingerprint, plan_training
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.checkpoint.stored_checkpoint import NO_TRY, Epoch, WaitingTry
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, upload
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotFound

log = logging.getLogger(__name__)


@attrs.frozen
class SubmissionRequest:
    """A job, and the other inputs of its submission."""

    job: JobSpec
    identity: Identity  # of the job's training
    # Values of the secrets that the job names; only its user processes see them.
    secrets: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    labels: Mapping[str, str] = attrs.field(factory=dict)  # its origin, for its event log (dag, run, try, …)
    search_path: Sequence[Path] = ()  # directories in which relative paths are searched, in this order
    # Directories in which files of the job may also lie, unless the connection's ``file_roots`` names directories.
    file_roots: Sequence[Path] = attrs.field(factory=tuple, kw_only=True)
    resume: Resume = Resume.AUTO  # whether to continue the training's newest checkpoint chain
    origin: ChainOrigin = attrs.field(factory=ChainOrigin)  # start of a training that has no own checkpoint
    given: Mapping[str, Any] | None = None  # the job as it was written, for its history; None if it is unknown
    overrides: Mapping[str, Any] | None = None  # changes to the job; the connection's policy limits their keys
    advice: Mapping[str, Any] | None = None  # changes by advice, which take precedence
    made: Sequence[Path] = ()  # files that were generated for the submission, so exempt from ``file_roots``
    # Variables of user processes that do not influence the training and may differ in each try. The job's ``env`` takes
    # precedence.
    environment: Mapping[str, str] = attrs.field(factory=dict)
    # The number of the training's owner that the submitter has seen. If the owner has changed since, the submission is
    # refused. None stands for the owner when the submission begins.
    after_owner: int | None = None
    whose: WaitingTry = NO_TRY  # the try that submits it
    watched: bool = True  # a task waits for its end and sends it newer tokens


# Tasks may run the file but not change it, as in NodeManagers' copies. On the local backend, tasks and later jobs use
# this file itself.
_CACHED_FILE = 0o500
_PARALLEL = 4  # parallel uploads, because many small files wait for the NameNode rather than for bandwidth


@attrs.define
class StagingCounts:
    """Numbers and sizes of the files that a staging uploaded or reused."""

    uploaded: int = 0
    uploaded_bytes: int = 0
    reused: int = 0
    reused_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.uploaded} files uploaded ({self.uploaded_bytes} bytes), "
            f"{self.reused} reused ({self.reused_bytes} bytes)"
        )


def places(layout: Layout, sources: Iterable[LocalSource]) -> Iterator[tuple[LocalSource, str]]:
    """Yield each source with its URI on the store. Sources with the same content and file name share a URI."""
    for source in sources:
        yield source, layout.cached(source.sha256, source.path.name)


class Stager:
    """Uploads files to the staging directory's cache, unless it already has their content."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout
        self.counts = StagingCounts()

    def stage(self, sources: Iterable[LocalSource]) -> list[LocalizedResource]:
        """Upload all sources; return the resources for containers, in the same order.

        Raises StagingFailed; files that are complete by then stay for the next job.
        """
        placed = list(places(self._layout, sources))
        once = {uri: source for source, uri in placed}  # stage a source of several task types only once
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="tony-staging") as pool:
            futures = {uri: pool.submit(self._stage_one, source, uri) for uri, source in once.items()}
            try:
                staged = {uri: future.result() for uri, future in futures.items()}
            except (StorageError, OSError) as error:
                for future in futures.values():
                    future.cancel()
                raise StagingFailed(f"the job's files could not be staged: {error}") from error
        for uri, (_, was_there) in staged.items():
            if was_there:
                self.counts.reused += 1
                self.counts.reused_bytes += once[uri].size
            else:
                self.counts.uploaded += 1
                self.counts.uploaded_bytes += once[uri].size
        return [stored_resource(staged[uri][0], each.name, each.kind, each.sha256) for each, uri in placed]

    def _stage_one(self, source: LocalSource, uri: str) -> tuple[FileStatus, bool]:
        """Return the file at the URI after staging, and whether it existed before."""
        status = self._usable(uri, source)
        was_there = status is not None
        if status is None:
            status = self._upload(uri, source)
        return status, was_there

    def _usable(self, uri: str, source: LocalSource) -> FileStatus | None:
        """Return the file at the URI if it has the source's content. Remove a file with other content."""
        try:
            status = self._storage.status(uri)
        except StorageNotFound:
            return None
        if self._holds(status, source):
            return status
        log.warning("%s is not what was staged there: replacing it", uri)
        self._storage.remove(uri)
        return None

    def _holds(self, status: FileStatus, source: LocalSource) -> bool:
        """Return whether a cached file has the source's content, because programs of former jobs can change it."""
        return status.size == source.size and sha256_of_stored(self._storage, status) == source.sha256

    def _upload(self, uri: str, source: LocalSource) -> FileStatus:
        self._check_unchanged(source)
        try:
            upload(self._storage, source.path, uri, permission=_CACHED_FILE)
            status = self._storage.status(uri)
        except StorageExists:
            found = self._usable(uri, source)
            if found is None:
                raise
            return found
        except BaseException:
            self._remove_if_empty(uris.parent(uri))
            raise
        try:
            self._check_unchanged(source)
        except StagingFailed:
            self._storage.remove(uri)
            raise
        log.info("Uploaded %s (%d bytes) as %s", source.path, source.size, uri)
        return status

    def _check_unchanged(self, source: LocalSource) -> None:
        stat = source.path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (source.size, source.modified_ns):
            raise StagingFailed(f"{source.path} was changed while it was being staged; start the task again")

    def _remove_if_empty(self, directory: str) -> None:
        try:
            self._storage.remove(directory)
        except StorageError as error:  # log only, because an earlier error is reported
            log.debug("Leaving %s: %s", directory, error)


@attrs.frozen
class PreparedSubmission:
    """A checked request with all files to be staged; nothing is on the store yet."""

    opened: OpenCluster
    request: SubmissionRequest  # its job has the connection's defaults
    before: Epoch  # the training's owner, which the application replaces
    sources: Sources  # the job's own sources
    runtime: LocalSource | LocalizedResource
    nodes: NodePythons  # the Pythons that the runtime supports
    fingerprint: dict[str, str]  # of the training's inputs
    environments: Mapping[str, EnvironmentContent]  # by their keys in the job
    registries: dict[str, str] = attrs.field(factory=dict, repr=False)  # registry credentials for images

    @property
    def layout(self) -> Layout:
        return Layout(self.opened.staging_dir)

    @property
    def chains(self) -> CheckpointChains:
        """The training's checkpoint chains."""
        return CheckpointChains(self.opened.storage, self.layout, self.request.identity)

    def description_uri(self, application_id: str) -> str:
        """Return the URI of the application's description for its containers."""
        return uris.join(self.layout.launch_dir(self.request.identity, application_id), contract.APPLICATION_FILE)

    @property
    def local_sources(self) -> list[LocalSource]:
        """All files to be staged, the runtime first."""
        return [self.runtime, *self.sources.local] if isinstance(self.runtime, LocalSource) else self.sources.local

    @property
    def kept_resources(self) -> list[KeptResource]:
        """The store's URIs of the job's files, which are valid after its submission."""
        staged = [(source.name, uri, source.key) for source, uri in places(self.layout, self.sources.local)]
        stored = [(source.name, source.resource.uri, source.key) for source in self.sources.stored]
        return [KeptResource(name=name, uri=uri, key=key) for name, uri, key in (*staged, *stored)]

    @staging_errors()
    def plan(self) -> TrainingPlan:
        """Plan the training by the store's present state.

        Raises SourceMissing, ClusterError, StagingFailed.
        """
        request = self.request
        return plan_training(self.opened.cluster, self.chains, self.fingerprint, request.resume, request.origin)

    def chain_uri(self, plan: TrainingPlan) -> str:
        """Return the URI of the checkpoint chain that the plan assigns to the application."""
        return plan.newest.uri if plan.goes_on and plan.newest is not None else self.chains.uri_after(plan.newest)


def prepare(opened: OpenCluster, request: SubmissionRequest) -> PreparedSubmission:
    """Check the request against the connection, the cluster and the store, and find its files.

    Raises JobRejected, SourceMissing, TakenOverError, other ClusterErrors, StorageError.
    """
    refuse_plain_http(opened.settings)  # the reads below would send this user's tokens
    before = _owner_before(opened, request)
    job = with_defaults(request.job, opened.settings)
    roots = opened.settings.policy.roots([*request.search_path, *request.file_roots], request.made)
    checks = JobChecks(
        opened, job, request.search_path, roots, request.overrides, request.secrets, request.identity.name
    )
    checks.expect_none()
    sources, nodes = checks.sources, checks.nodes
    assert sources is not None and nodes is not None  # noqa: S101, PT018 - found by the checks
    prepared = PreparedSubmission(
        opened,
        attrs.evolve(request, job=job),
        before,
        _with_known_content(sources, checks.environments),
        checks.runtime or local_runtime(worker_archive()),
        nodes,
        fingerprint(job, sources),
        checks.environments,
        checks.registries,
    )
    prepared.plan()  # report a missing origin before anything is changed
    return prepared


def _owner_before(opened: OpenCluster, request: SubmissionRequest) -> Epoch:
    """Return the training's owner. Raises StagingFailed, RecordUnreadable; TakenOverError for an unexpected one."""
    with staging_errors():
        before = TrainingOwners(opened.storage, Layout(opened.staging_dir).job_dir(request.identity)).newest()
    if request.after_owner not in (None, before.number):
        raise TakenOverError(f"{before.owner.whose.name or 'a submission'} has taken this training over")
    return before


def with_defaults(job: JobSpec, settings: Settings) -> JobSpec:
    """Return the job with the connection's defaults for keys that the job does not set."""
    if job.queue is None:
        job = attrs.evolve(job, queue=settings.queue)
    if job.network is None:
        job = attrs.evolve(job, network=settings.network)
    if job.logs.max_size is None:
        job = attrs.evolve(job, logs=attrs.evolve(job.logs, max_size=settings.log_size))
    if job.timeouts.lifetime is None:
        job = attrs.evolve(job, timeouts=attrs.evolve(job.timeouts, lifetime=settings.policy.max_lifetime))
    return job


def _with_known_content(sources: Sources, environments: Mapping[str, EnvironmentContent]) -> Sources:
    """Return the sources with the hashes of built environments, so that containers verify these."""
    hashes = {key: each.sha256 for key, each in environments.items() if each.built}
    stored = [
        attrs.evolve(each, resource=attrs.evolve(each.resource, sha256=hashes.get(each.key))) for each in sources.stored
    ]
    return attrs.evolve(sources, stored=stored)

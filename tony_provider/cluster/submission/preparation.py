"""Prepare a submission: check the request, find the files to stage, and upload them.

``prepare`` changes nothing on the store. A Stager uploads the files to the staging directory's cache.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.application_secrets import read_registries
from tony_provider.cluster.checks.job_checks import check_inputs, check_outputs, hdfs_name_problems, refuse_plain_http
from tony_provider.cluster.environments import inspection
from tony_provider.cluster.environments.built_environments import SharedCache
from tony_provider.cluster.environments.inspection import NodePythons, StoredFile, inspect_environments, needs_nodes
from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.cluster.errors import ConnectionProblem, JobNotAllowed, JobRejected, SourceMissing, StagingFailed
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.records.history import EnvironmentContent, KeptResource
from tony_provider.cluster.settings import Backend, Settings
from tony_provider.cluster.sources import (
    LocalSource,
    SourceFinder,
    Sources,
    in_store,
    local_source,
    sha256_of_stored,
    stored_resource,
)
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, TakenOverError, TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.plan import ChainOrigin, Resume, TrainingPlan, TrainingPlanner, fingerprint
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.checkpoint.training_owner import NO_TRY, Epoch, WaitingTry
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.frameworks.base import fits_variable
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.launch.launch_context import UnsafeValue, job_launch_environment, script_values
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


_PIECE = 1 << 16  # bytes read at once from a runtime archive on the store


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

    def plan(self) -> TrainingPlan:
        """Plan the training by the store's present state.

        Raises SourceMissing, ClusterError, StagingFailed.
        """
        planner = TrainingPlanner(self.opened.cluster, self.opened.storage, self.layout, self.request.identity)
        try:
            return planner.plan(self.fingerprint, self.request.resume, self.request.origin)
        except StorageError as error:
            raise StagingFailed(f"the job could not be staged: {error}") from error


def prepare(opened: OpenCluster, request: SubmissionRequest) -> PreparedSubmission:
    """Check the request against the connection, the cluster and the store, and find its files.

    Raises JobRejected, SourceMissing, TakenOverError, other ClusterErrors, StorageError.
    """
    refuse_plain_http(opened.settings)
    before = _owner_before(opened, request)
    job = with_defaults(request.job, opened.settings)
    if found := [
        *_secret_problems(job, request.secrets),
        *_hadoop_problems(job, opened),
        *hdfs_name_problems(job, opened),
        *_shared_problems(job, opened.settings),
    ]:
        raise JobRejected(found)
    sources = _allowed_sources(opened, request, job)
    runtime = _runtime(opened)
    if found := list(_launch_problems(job, opened.settings, sources, runtime)):
        raise JobRejected(found)
    opened.cluster.check(job)
    check_inputs(job, opened.storage, opened.staging_dir)
    check_outputs(job, opened.storage, opened.staging_dir, request.identity.name)
    registries = read_registries(sources.client_config, opened.storage) if sources.client_config else {}
    request = attrs.evolve(request, job=job)
    nodes = _nodes(opened, runtime)
    environments = suitable_environments(opened, job, sources, nodes)
    prepared = PreparedSubmission(
        opened,
        request,
        before,
        _with_known_content(sources, environments),
        runtime,
        nodes,
        fingerprint(job, sources),
        environments,
        registries,
    )
    prepared.plan()  # report a missing origin before anything is changed
    return prepared


def _owner_before(opened: OpenCluster, request: SubmissionRequest) -> Epoch:
    """Return the training's owner. Raises StagingFailed, RecordUnreadable; TakenOverError for an unexpected one."""
    try:
        before = TrainingOwners(opened.storage, Layout(opened.staging_dir).job_dir(request.identity)).newest()
    except StorageError as error:
        raise StagingFailed(f"the job could not be staged: {error}") from error
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


def check_policy(job: JobSpec, settings: Settings, overrides: Mapping[str, Any] | None = None) -> None:
    """Check a job (with the connection's defaults) against the connection's policy, except for its files.

    Raises JobNotAllowed.
    """
    if found := _policy_problems(job, settings, overrides):
        raise JobNotAllowed(found)


def _policy_problems(job: JobSpec, settings: Settings, overrides: Mapping[str, Any] | None) -> list[str]:
    return settings.policy.problems(job, overrides, has_queues=settings.backend is Backend.YARN)


def _allowed_sources(opened: OpenCluster, request: SubmissionRequest, job: JobSpec) -> Sources:
    """Find the job's files. Raises JobNotAllowed with everything that the connection forbids; SourceMissing."""
    policy = opened.settings.policy
    found = _policy_problems(job, opened.settings, request.overrides)
    roots = policy.roots([*request.search_path, *request.file_roots], request.made)
    try:
        sources = SourceFinder(opened.storage, opened.staging_dir, request.search_path, roots).find(job)
    except JobNotAllowed as error:
        found += error.problems
    except SourceMissing:
        if not found:
            raise
    if found:
        raise JobNotAllowed(found)
    return sources


def _shared_problems(job: JobSpec, settings: Settings) -> list[str]:
    if not job.checkpoint.shared or settings.shared_dir is not None:
        return []
    return [
        "checkpoint.shared: needs a file system that all nodes have mounted. Have the administrator name its directory "
        f"in `shared_dir` of the connection {settings.policy.conn_id!r}, or leave the key out and have the program "
        "write to TONY_CHECKPOINT_URI, with checkpoint.mirror: off"
    ]


def _runtime(opened: OpenCluster) -> LocalSource | LocalizedResource:
    archive = opened.settings.runtime_archive
    if archive is not None and in_store(archive, opened.staging_dir):
        try:
            status = opened.storage.status(archive)
        except StorageNotFound as error:
            raise SourceMissing(f"the tony connection's runtime_archive is not there: {error}") from error
        return stored_resource(status, contract.RUNTIME_FILE, sha256=sha256_of_stored(opened.storage, status))
    path = worker_archive() if archive is None else Path(archive.removeprefix("file://"))
    try:
        return local_source(path, contract.RUNTIME_FILE)
    except OSError as error:
        raise SourceMissing(f"the tony connection's runtime_archive cannot be read: {error}") from error


def suitable_environments(
    opened: OpenCluster, job: JobSpec, sources: Sources, nodes: NodePythons | None = None
) -> Mapping[str, EnvironmentContent]:
    """Return the contents of the job's environments, by their keys.

    Raises JobRejected if they are known to be unsuitable for the nodes; SourceMissing, StorageError.
    """
    if not needs_nodes(job):
        return {}
    nodes = _nodes(opened) if nodes is None else nodes
    try:
        looked_at = inspect_environments(job, sources, opened.storage, nodes, shared_cache(opened))
    except OSError as error:
        raise SourceMissing(f"an environment of the job cannot be read: {error}") from error
    if looked_at.problems:
        raise JobRejected(looked_at.problems)
    return looked_at.contents


def _with_known_content(sources: Sources, environments: Mapping[str, EnvironmentContent]) -> Sources:
    """Return the sources with the hashes of built environments, so that containers verify these."""
    hashes = {key: each.sha256 for key, each in environments.items() if each.built}
    stored = [
        attrs.evolve(each, resource=attrs.evolve(each.resource, sha256=hashes.get(each.key))) for each in sources.stored
    ]
    return attrs.evolve(sources, stored=stored)


def shared_cache(opened: OpenCluster) -> SharedCache | None:
    """Return the cache that users share, or None if the connection names none. Raises ConnectionProblem."""
    named = opened.settings.shared_cache
    if named is None:
        return None
    root = str(uris.parse(named))
    if uris.scheme(root) != uris.scheme(opened.staging_dir):
        where = f"another store than the staging directory {opened.staging_dir}"
        raise ConnectionProblem(f"the tony connection's shared_cache {named} is in {where}")
    return SharedCache(opened.storage, root, opened.cluster.user, Layout(opened.staging_dir))


def _nodes(opened: OpenCluster, runtime: LocalSource | LocalizedResource | None = None) -> NodePythons:
    """Return the Pythons that the runtime supports on the nodes. Raises SourceMissing, StorageError."""
    if opened.settings.runtime_archive is None:
        return inspection.pythons_of_this_host()
    runtime = runtime or _runtime(opened)
    try:
        if isinstance(runtime, LocalSource):
            with runtime.path.open("rb") as file:
                nodes = inspection.pythons_of_runtime(file)
        else:
            stored = StoredFile(opened.storage, opened.storage.status(runtime.uri))
            nodes = inspection.pythons_of_runtime(BufferedReader(stored, _PIECE))
    except (OSError, zipfile.BadZipFile) as error:
        raise SourceMissing(f"the tony connection's runtime_archive cannot be read: {error}") from error
    if not nodes.versions:
        raise SourceMissing(
            f"the tony connection's runtime_archive {opened.settings.runtime_archive} is not a runtime archive of this "
            "release; build one with `airflow tony runtime build`"
        )
    return nodes


def _launch_problems(
    job: JobSpec, settings: Settings, sources: Sources, runtime: LocalSource | LocalizedResource
) -> Iterator[str]:
    """Yield the variables and files of the job's containers that YARN's launch script would interpret."""
    files = [(each.key, each.resource) for each in sources.stored]
    if isinstance(runtime, LocalizedResource):
        files.append(("runtime_archive of the tony connection", runtime))
    places: list[tuple[str, dict[str, str], dict[str, LocalizedResource]]] = [
        *((child("tasks", each), job_launch_environment(job, settings.python, each), {}) for each in job.tasks),
        ("am", job_launch_environment(job, settings.python), {}),
        *((key, {}, {contract.FILES_DIR: resource}) for key, resource in files),
    ]
    for place, variables, resources in places:
        try:
            script_values([], variables, resources)
        except UnsafeValue as error:
            yield f"{place}: {error}"


def _hadoop_problems(job: JobSpec, opened: OpenCluster) -> list[str]:
    """Return the problem of a job that needs HDFS tokens on a cluster with Kerberos but cannot get them."""
    yarn = opened.settings.yarn
    if not job.hadoop or yarn is None or not yarn.kerberos or opened.tokens is not None:
        return []
    return [
        f"hadoop: there are no HDFS tokens to give, since the staging directory {opened.staging_dir} is not on HDFS; "
        "name one on HDFS as staging_dir in the tony connection, or leave the key out"
    ]


def _secret_problems(job: JobSpec, secrets: Mapping[str, str]) -> list[str]:
    """Return the problems of the secrets' values, without showing the values."""
    missing = [name for name in job.secrets if name not in secrets]
    advice = "give it to the operator, in its argument secrets"
    found = [f"secrets: no value was given for {name!r}; {advice}" for name in missing]
    for name, value in secrets.items():
        if "\0" in value:
            found.append(f"secrets.{name}: its value holds a NUL character, which no environment variable can")
        elif not is_writable(value):
            found.append(f"secrets.{name}: its value is no text that UTF-8 can write")
        elif not fits_variable(name, value):
            found.append(f"secrets.{name}: its value is too long: Linux takes at most 128 KiB; use a file")
    return found

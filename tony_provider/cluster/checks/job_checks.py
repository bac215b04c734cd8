"""The checks of a job before its submission, and a scan that measures its inputs.

A submission and ``airflow tony check`` both run the checks that ``JobChecks`` lists. A check yields findings, or raises
JobRejected or SourceMissing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
import zipfile
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.application_secrets import read_registries
from tony_provider.cluster.environments import inspection
from tony_provider.cluster.environments.built_environments import SharedCache
from tony_provider.cluster.environments.inspection import (
    NodePythons,
    StoredFile,
    has_staged_environments,
    inspect_environments,
)
from tony_provider.cluster.errors import ConnectionProblem, JobNotAllowed, JobRejected, SourceMissing
from tony_provider.cluster.findings import (
    Check,
    Finding,
    Need,
    Severity,
    raise_problems,
    run_in_order,
    warning,
)
from tony_provider.cluster.open_cluster import VIEWFS, OpenCluster
from tony_provider.cluster.records.history import EnvironmentContent
from tony_provider.cluster.settings import Backend, FileRoots, Settings
from tony_provider.cluster.sources import (
    LocalSource,
    SourceFinder,
    Sources,
    in_store,
    local_source,
    sha256_of_stored,
    stored_resource,
)
from tony_provider.cluster.tables import metastore_problem, table_lists
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.frameworks.base import fits_variable, get_framework
from tony_provider.runtime.inputs.finding import BadInputError, find_shards, find_shards_at, find_table_shards
from tony_provider.runtime.inputs.shards import BalancedAssignment, InputShard, shards_needed, too_few_shards
from tony_provider.runtime.jobspec.container_content import named_objects
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec, in_cluster, unmarked
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.launch.launch_context import UnsafeValue, job_launch_environment, script_values
from tony_provider.runtime.outputs.publication import target_problem
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageInvalidPath, StorageNotFound, StorageUnsupported
from tony_provider.runtime.storage.object_store import PACKAGE
from tony_provider.runtime.storage.object_store import SCHEMES as OBJECT_STORES
from tony_provider.runtime.storage.stores import JobStores
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)

POLICY = "Limits of the connection"
CLUSTER = "Cluster"
_PIECE = 1 << 16  # bytes read at once from a runtime archive on the store


@attrs.define
class JobChecks:
    """The checks of one job, and their results for later checks and for the submission."""

    opened: OpenCluster
    job: JobSpec  # with the connection's defaults
    search_path: Sequence[Path] = ()  # directories for relative paths, see SubmissionRequest
    roots: FileRoots = attrs.field(factory=lambda: FileRoots("", ()))
    overrides: Mapping[str, Any] | None = None
    secrets: Mapping[str, str] | None = attrs.field(default=None, repr=False)  # values by name; None if not yet known
    training: str | None = None  # name of the job's Identity; None if it is not known yet
    # Returns the inputs with a table whose list an earlier application has kept, so they are not looked up again.
    kept_tables: Callable[[Sources], Container[str]] = lambda _: ()
    is_allowed: bool = attrs.field(default=False, init=False)
    names_known_hdfs: bool = attrs.field(default=False, init=False)
    sources: Sources | None = attrs.field(default=None, init=False)
    runtime: LocalSource | LocalizedResource | None = attrs.field(default=None, init=False)  # None: to be packed
    nodes: NodePythons | None = attrs.field(default=None, init=False)  # Pythons that the runtime supports
    environments: Mapping[str, EnvironmentContent] = attrs.field(factory=dict, init=False)  # by keys of the job
    registries: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)  # credentials by registry
    tables: Mapping[str, Sequence[InputShard]] = attrs.field(factory=dict, init=False)  # see ``table_lists``

    def run(self, *only: str) -> list[Finding]:
        """Run all checks, or only the checks named in ``only``. Raises the errors of ``run_in_order``."""
        opened, job, settings = self.opened, self.job, self.opened.settings
        allowed = Need("the connection does not allow the job", lambda: self.is_allowed)
        known = Need("the job names an unknown HDFS", lambda: self.names_known_hdfs)
        files = Need("files of the job cannot be used", lambda: self.sources is not None)
        runtime = Need("the runtime cannot be used", lambda: self.nodes is not None)
        checks = [
            Check("Plain http", lambda: refuse_plain_http(settings)),
            Check("Secrets", lambda: secret_problems(job, self.secrets) if self.secrets is not None else ()),
            Check("HDFS tokens", lambda: hadoop_problems(job, opened)),
            Check("Shared checkpoints", lambda: shared_problems(job, settings)),
            Check("Names of HDFS", self._check_hdfs_names),
            Check(POLICY, self._check_policy, error=JobNotAllowed),
            Check("Files", self._find_files, [known]),
            Check("Runtime", self._find_runtime, [allowed]),
            Check("Launch script", self._launch_problems, [files, runtime]),
            Check(CLUSTER, lambda: opened.cluster.check(job), [allowed]),
            Check("Tables", self._find_tables, [known, allowed]),
            Check("Inputs", self._check_inputs, [known, allowed], SourceMissing),
            Check("Outputs", self._check_outputs, [known, allowed]),
            Check("Registries", self._read_registries, [files, allowed]),
            Check("Environments", self._inspect_environments, [files, runtime]),
            Check("Open ports", lambda: open_ports(job) if settings.backend is Backend.YARN else ()),
        ]
        return run_in_order([check for check in checks if not only or check.what in only])

    def expect_none(self, *only: str) -> None:
        """Run checks like ``run``, and log their warnings. Raises one error with all problems."""
        expect_no_problems(self.run(*only))

    def _check_hdfs_names(self) -> list[Finding | str]:
        found = list(check_hdfs_names(job_uris(self.job), self.opened))
        self.names_known_hdfs = all(isinstance(each, Finding) for each in found)
        return found

    def _check_policy(self) -> list[str]:
        settings = self.opened.settings
        found = settings.policy.problems(self.job, self.overrides, has_queues=settings.backend is Backend.YARN)
        self.is_allowed = not found
        return found

    def _find_files(self) -> None:
        """Find the job's files. For a job that the policy forbids, report forbidden files, but not missing ones."""
        try:
            self.sources = SourceFinder(
                self.opened.storage, self.opened.staging_dir, self.search_path, self.roots
            ).find(self.job)
        except SourceMissing:
            if self.is_allowed:
                raise

    def _find_runtime(self) -> Iterator[str]:
        self.runtime = named_runtime(self.opened)
        self.nodes = _nodes(self.opened, self.runtime)
        if names_object_store(self.job) and not self.nodes.object_stores:
            yield _NO_LIBRARY if self.runtime is None else _ARCHIVE_LACKS_LIBRARY

    def _launch_problems(self) -> Iterator[str]:
        assert self.sources is not None  # noqa: S101 - needed
        return launch_problems(self.job, self.opened.settings, self.sources, self.runtime)

    def _find_tables(self) -> Iterator[Finding | str]:
        opened, kept = self.opened, self.kept_tables(self.sources) if self.sources is not None else ()
        inputs = {name: each for name, each in self.job.inputs.items() if name not in kept}
        self.tables = table_lists(inputs, opened.metastore, opened.storage, opened.staging_dir)
        for name, listed in self.tables.items():
            roots = {str(attrs.evolve(uris.parse(each.uri), path="/")) for each in listed}
            yield from check_hdfs_names(((child("inputs", name, "table"), root) for root in roots), opened)

    def _check_inputs(self) -> list[str]:
        with self._stores() as stores:
            return input_problems(self.job, stores, self.opened.staging_dir, self.tables)

    def _check_outputs(self) -> list[str]:
        if self.training is None:
            return []
        with self._stores() as stores:
            return output_problems(self.job, stores, self.opened.staging_dir, self.training)

    def _stores(self) -> contextlib.closing[JobStores]:
        variables = {**self.job.env, **(self.secrets or {})}
        return contextlib.closing(JobStores(self.opened.storage, self.opened.staging_dir, variables))

    def _read_registries(self) -> None:
        if self.sources is not None and self.sources.client_config:
            self.registries = read_registries(self.sources.client_config, self.opened.storage)

    def _inspect_environments(self) -> None:
        assert self.sources is not None  # noqa: S101 - needed
        self.environments = suitable_environments(self.opened, self.job, self.sources, self.nodes)


def expect_no_problems(findings: Sequence[Finding]) -> None:
    """Raise one error with all problems of a job. If there are no problems, log the other findings."""
    raise_problems(findings)
    for each in findings:
        if each.outcome is not Severity.SKIPPED:
            log.log(logging.WARNING if each.outcome is Severity.WARNING else logging.INFO, "%s", each.detail)


HTTPS_REMEDY = (
    "set https addresses (by default port 8090 of ResourceManagers, 9871 of NameNodes), with `verify` and "
    "`nodes_ca_file` if they use your own authority; or, on a trusted network, set `insecure_http` "
    "to true in the tony connection"
)
_SENT = "a submission contains the job's keys, secrets and HDFS tokens, which an eavesdropper could use"


def refuse_plain_http(settings: Settings) -> None:
    """Refuse to send keys and tokens over plain http on a cluster with Kerberos, unless the connection allows it.

    Raises ConnectionProblem, which names the addresses.
    """
    if settings.yarn is None or settings.yarn.insecure_http:
        return
    if plain := settings.yarn.plain_addresses:
        raise ConnectionProblem(f"{', '.join(plain)}: plain http with Kerberos, and {_SENT}; {HTTPS_REMEDY}")


def open_ports(job: JobSpec) -> Iterator[Finding]:
    """Warn if a job's framework accepts any client and the job declares no ``network``.

    ``job`` must include the connection's defaults. A job whose framework runs a single process gets no warning, because
    that process serves no other process.
    """
    exposed = get_framework(job.framework).exposed
    if job.network is not None or not exposed or _members(job) < 2:
        return
    ports = f"ports {job.port_range.first} to {job.port_range.last} of the nodes, and its own ports"
    detail = (
        f"{exposed} ({ports}). Set `network` to `isolated` if the ports are protected (see the guide "
        '"Secure jobs on a shared cluster"), or to `trusted` if every user of the nodes may do that'
    )
    yield warning("Open ports", detail, "")


def _members(job: JobSpec) -> int:
    """Return the number of the framework's processes in the job."""
    return sum(
        task.most_instances * task.process_count for name, task in job.tasks.items() if in_cluster(job.role(name))
    )


_VIEW_NAME = f"{VIEWFS}://"  # stands for every viewfs URI; no HDFS has this name


def check_hdfs_names(named: Iterable[tuple[str, str]], opened: OpenCluster) -> Iterator[Finding | str]:
    """Report URIs of an HDFS unknown to the connection, because the staging directory's HDFS would be read instead.

    ``named``: keys of the job with their URIs. Only warn about a name that may also stand for the staging directory's
    HDFS, because NameNodes have several names. Raises ClusterError.
    """
    if opened.nodes_webhdfs is None:
        return
    known = {uris.parse(opened.staging_dir).authority.lower(), *(each.name.lower() for each in opened.other_hdfs)}
    unknown = {key: name for key, name in _names(named) if name not in known}
    if not unknown:
        return
    properties = opened.cluster.client_configuration()
    services = set(properties.get("dfs.nameservices", "").lower().replace(",", " ").split())
    addresses = _addresses(properties)
    for key, name in unknown.items():
        if name == _VIEW_NAME or name in services:
            yield f"{key}: {_remedy(name)}"
        elif name not in addresses:
            taken = f"{key}: hdfs://{name} is assumed to be the HDFS of {opened.staging_dir}"
            yield warning(
                "Names of HDFS", f"{taken}; if it is another HDFS, add it to the connection's `other_hdfs`", ""
            )


def _remedy(name: str) -> str:
    if name == _VIEW_NAME:
        return f"{name}… is not an HDFS but a client-side view: use the hdfs:// URI that it maps to"
    return (
        f"hdfs://{name} is not the HDFS of the staging directory; add it to the connection's `other_hdfs`, such "
        f"as {name}=http://<its NameNode>:9870"
    )


def _addresses(properties: Mapping[str, str]) -> set[str]:
    """Return the addresses of the cluster's NameNodes and default file system. Most are names of the same HDFS."""
    found = {value.lower() for name, value in properties.items() if name.startswith("dfs.namenode.rpc-address")}
    default = properties.get("fs.defaultFS", "")
    return {*found, uris.parse(default).authority.lower()} if "://" in default else found


def _names(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the key and the HDFS name of each HDFS URI. A viewfs URI has the name ``viewfs://``."""
    for key, uri in named:
        try:
            parsed = uris.parse(uri)
        except StorageInvalidPath:
            continue  # a relative path, or an invalid URI that another check reports
        if parsed.scheme in SCHEMES and parsed.authority:
            yield key, parsed.authority.lower()
        elif parsed.scheme == VIEWFS:
            yield key, _VIEW_NAME


def job_uris(job: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the key of each URI that the job names, and the URI."""
    for named in named_objects(job):
        yield named.key, unmarked(named.uri)[0]
    for name, written in job.outputs.items():
        yield f"outputs.{name}.path", written.path


def shared_problems(job: JobSpec, settings: Settings) -> list[str]:
    if not job.checkpoint.shared or settings.shared_dir is not None:
        return []
    return [
        "checkpoint.shared: needs a file system that all nodes have mounted. Have the administrator set its directory "
        f"in `shared_dir` of the connection {settings.policy.conn_id!r}; or remove the key and have the program "
        "write to TONY_CHECKPOINT_URI, with checkpoint.mirror: off"
    ]


_NO_LIBRARY = (
    f"inputs or outputs on an object store need the package {PACKAGE} on this worker: install tony-provider with the "
    "extra object-stores, or name a runtime_archive in the tony connection"
)
_ARCHIVE_LACKS_LIBRARY = (
    "inputs or outputs on an object store need a library that the archive of the tony connection (runtime_archive) "
    "lacks: build it again with `airflow tony runtime build --object-stores`"
)


def names_object_store(job: JobSpec) -> bool:
    """Return whether an input or output of the job is on an object store."""
    paths = [path for each in job.inputs.values() for path in each.paths]
    return any(uris.scheme(path) in OBJECT_STORES for path in [*paths, *(each.path for each in job.outputs.values())])


def named_runtime(opened: OpenCluster) -> LocalSource | LocalizedResource | None:
    """Return the connection's runtime archive, or None if the worker's own packages are sent.

    Raises SourceMissing, StorageError.
    """
    archive = opened.settings.runtime_archive
    if archive is None:
        return None
    if in_store(archive, opened.staging_dir):
        try:
            status = opened.storage.status(archive)
        except StorageNotFound as error:
            raise SourceMissing(f"cannot find the tony connection's runtime_archive: {error}") from error
        return stored_resource(status, contract.RUNTIME_FILE, sha256=sha256_of_stored(opened.storage, status))
    return local_runtime(Path(archive.removeprefix("file://")))


def local_runtime(archive: Path) -> LocalSource:
    """Return a runtime archive of this machine as a file to be staged. Raises SourceMissing."""
    try:
        return local_source(archive, contract.RUNTIME_FILE)
    except OSError as error:
        raise SourceMissing(f"the tony connection's runtime_archive cannot be read: {error}") from error


def _nodes(opened: OpenCluster, runtime: LocalSource | LocalizedResource | None) -> NodePythons:
    """Return the Pythons that the runtime supports on the nodes. Raises SourceMissing, StorageError."""
    if runtime is None:
        return inspection.pythons_of_this_host()
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


def suitable_environments(
    opened: OpenCluster, job: JobSpec, sources: Sources, nodes: NodePythons | None = None
) -> Mapping[str, EnvironmentContent]:
    """Return the contents of the job's environments, by their keys.

    Raises JobRejected if an environment is known not to suit the nodes; SourceMissing, StorageError.
    """
    if not has_staged_environments(job):
        return {}
    nodes = _nodes(opened, named_runtime(opened)) if nodes is None else nodes
    try:
        inspected = inspect_environments(job, sources, opened.storage, nodes, shared_cache(opened))
    except OSError as error:
        raise SourceMissing(f"an environment of the job cannot be read: {error}") from error
    if inspected.problems:
        raise JobRejected(inspected.problems)
    return inspected.contents


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


def launch_problems(
    job: JobSpec, settings: Settings, sources: Sources, runtime: LocalSource | LocalizedResource | None
) -> Iterator[str]:
    """Yield a problem for each place whose variables or files YARN's launch script would interpret."""
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


def hadoop_problems(job: JobSpec, opened: OpenCluster) -> list[str]:
    """Return why a job on a cluster with Kerberos cannot get the tokens of HDFS or Hive that it needs, or []."""
    yarn = opened.settings.yarn
    if not job.hadoop or yarn is None or not yarn.kerberos:
        return []
    if opened.tokens is not None:
        why = metastore_problem(opened.metastore) if job.hadoop.hive else ""
        return [f"hadoop.hive: {why}"] if why else []
    return [
        f"hadoop: cannot get HDFS tokens, because the staging directory {opened.staging_dir} is not on HDFS; "
        "set staging_dir in the tony connection to a directory on HDFS, or remove the key"
    ]


def secret_problems(job: JobSpec, secrets: Mapping[str, str]) -> list[str]:
    """Return the problems of the secrets' values, without showing the values."""
    missing = [name for name in job.secrets if name not in secrets]
    advice = "pass it in the operator's argument secrets"
    found = [f"secrets: no value was given for {name!r}; {advice}" for name in missing]
    for name, value in secrets.items():
        if "\0" in value:
            found.append(f"secrets.{name}: its value has a NUL character, which an environment variable cannot hold")
        elif not is_writable(value):
            found.append(f"secrets.{name}: its value cannot be encoded in UTF-8")
        elif not fits_variable(name, value):
            found.append(f"secrets.{name}: its value is too long: Linux accepts at most 128 KiB; use a file")
    return found


def input_problems(
    job: JobSpec, stores: JobStores, store_uri: str, tables: Mapping[str, Sequence[InputShard]]
) -> list[str]:
    """Check that each input has as many files as its tasks need, without listing more files than that.

    ``store_uri`` is the URI of the job's own store. ``tables``: see ``table_lists``. Raises StorageError.
    """
    return [
        problem for name in job.inputs for problem in _input_problems(job, name, store_uri, stores, tables.get(name))
    ]


def _is_out_of_reach(path: str, store_uri: str, stores: JobStores) -> bool:
    """Return whether only the nodes can read a path: it is on their disks, or their role gives access to it."""
    return uris.scheme(path) == "file" != uris.scheme(store_uri) or not stores.can_open(path)


def _input_problems(
    job: JobSpec, name: str, store_uri: str, stores: JobStores, listed: Sequence[InputShard] | None
) -> Iterator[str]:
    spec, least, found = job.inputs[name], shards_needed(job, name), 0
    if spec.table is not None and listed is None:
        return  # the check of the table has failed
    places = [] if listed is None else [find_table_shards(name, spec, listed, stores)]
    for index, path in enumerate(spec.paths):
        if _is_out_of_reach(path, store_uri, stores):
            found += least  # assume that there are enough files
        else:
            places.append(find_shards_at(name, spec, index, stores))
    for shards in places:
        try:
            found += sum(1 for _ in itertools.islice(shards, least))
        except BadInputError as error:
            yield str(error)
            found += least  # do not also report too few files
    if problem := too_few_shards(job, name, found):
        yield problem


@attrs.frozen
class Amount:
    """A number of shards and their total size in bytes."""

    shards: int
    size: int


@attrs.frozen
class InputSizes:
    """The size of one input: its total, and the smallest and largest share of a task.

    The shares are None if tasks take shards from a queue, because the assignment is not known in advance.
    """

    total: Amount
    smallest: Amount | None = None  # the share with the fewest bytes
    largest: Amount | None = None


class _TooLongError(Exception):
    pass


def input_sizes(job: JobSpec, storage: Storage, store_uri: str, seconds: float) -> dict[str, InputSizes | str]:
    """Return the size of each input of a job by name, or the reason why it is unknown after ``seconds``.

    ``storage`` is the job's own store, which contains ``store_uri``. The inputs are measured in a separate thread,
    because a store may not answer.
    """
    until, too_long = time.monotonic() + seconds, f"its store was not read within {seconds:g} s"
    found: dict[str, InputSizes | str] = {}

    def check_time() -> None:
        if time.monotonic() > until:
            raise _TooLongError(too_long)

    def measure() -> None:
        with contextlib.closing(JobStores(storage, store_uri, job.env)) as stores:
            for name in job.inputs:
                found[name] = _input_size(job, name, store_uri, stores, check_time)

    run_in_threads([measure], seconds, "tony-inputs")
    return {name: found.get(name, too_long) for name in job.inputs}


def _input_size(
    job: JobSpec, name: str, store_uri: str, stores: JobStores, check_time: Callable[[], None]
) -> InputSizes | str:
    spec = job.inputs[name]
    if spec.table is not None:
        return "its table is only listed at submission"
    if any(_is_out_of_reach(path, store_uri, stores) for path in spec.paths):
        return "only the nodes can read it"
    try:
        sizes = array("Q", (shard.bytes_to_read for shard in find_shards(name, spec, stores, check_time)))
    except Exception as error:  # noqa: BLE001 - the other inputs are measured
        return str(error) or type(error).__name__
    total = Amount(len(sizes), sum(sizes))
    if spec.deal is not InputDeal.STATIC:
        return InputSizes(total)
    parts = _parts(sizes, shards_needed(job, name))
    return InputSizes(total, parts[0], parts[-1])


def _parts(sizes: Sequence[int], number: int) -> list[Amount]:
    """Return the amount that each task gets in a static assignment of the shards, the smallest first."""
    deal = BalancedAssignment.of(sizes, number)
    parts = [Amount(len(part), sum(sizes[shard] for shard in part)) for part in map(deal.part, range(number))]
    return sorted(parts, key=lambda part: part.size)


def output_problems(job: JobSpec, stores: JobStores, staging_dir: str, training: str) -> list[str]:
    """Check that no output path contains files that the training did not write.

    ``training`` is the name of the job's Identity. Raises StorageError.
    """
    return [problem for name in job.outputs for problem in _output_problems(job, name, staging_dir, training, stores)]


def _output_problems(job: JobSpec, name: str, staging_dir: str, training: str, stores: JobStores) -> Iterator[str]:
    spec = job.outputs[name]
    where = child(child("outputs", name), "path")
    layout = Layout(staging_dir)
    ours = next((each for each in (layout.jobs_dir, layout.cache_dir) if _overlap(spec.path, each)), None)
    if ours:
        yield f"{where}: {spec.path} overlaps with {ours} of the connection's staging directory; use another path"
        return
    if _is_out_of_reach(spec.path, staging_dir, stores):
        return
    try:
        problem = target_problem(stores.of(spec.path), name, spec, training)
    except StorageUnsupported as error:
        yield f"{where}: {error}"
        return
    if problem:
        yield problem


def _overlap(path: str, ours: str) -> bool:
    """Return whether the paths are equal or one contains the other."""
    mine, theirs = uris.parse(path), uris.parse(ours)
    if mine.scheme != theirs.scheme:
        return False
    one, other = (f"{each.path.rstrip('/')}/" for each in (mine, theirs))
    return one.startswith(other) or other.startswith(one)

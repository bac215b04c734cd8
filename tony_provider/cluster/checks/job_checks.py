"""Checks of a job before its submission: plain http, open ports, names of HDFS, inputs and outputs.

``InputSizeScan`` also measures the inputs.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence

import attrs

from tony_provider.cluster.errors import ConnectionProblem, JobRejected, SourceMissing
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.inputs.finding import BadInputError, find_shards, find_shards_at
from tony_provider.runtime.inputs.shards import BalancedAssignment, shards_needed, too_few_shards
from tony_provider.runtime.jobspec.container_content import named_environments, named_resources, parts
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec, unmarked
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.jobspec.task_types import in_cluster
from tony_provider.runtime.outputs.publication import target_problem
from tony_provider.runtime.storage import Storage, StorageUnsupported, uris
from tony_provider.runtime.storage.errors import StorageInvalidPath
from tony_provider.runtime.storage.stores import JobStores
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)


HTTPS_REMEDY = (
    "write the https addresses (by default port 8090 of ResourceManagers, 9871 of NameNodes) with `verify` and "
    "`nodes_ca_file` where their authority is your own, or, where nobody can listen on the way, set `insecure_http` "
    "to true in the tony connection"
)
_SENT = "a submission carries the job's keys, secrets and HDFS tokens, which whoever listens on the way could use"


def refuse_plain_http(settings: Settings) -> None:
    """Refuse to send keys and tokens over plain http on a cluster with Kerberos, unless the connection allows it.

    Raises ConnectionProblem, which names the addresses.
    """
    if settings.yarn is None or settings.yarn.insecure_http:
        return
    if plain := settings.yarn.plain_addresses:
        raise ConnectionProblem(f"{', '.join(plain)}: plain http with Kerberos, and {_SENT}; {HTTPS_REMEDY}")


_REMEDY = (
    "close them to others (docs/security.md has recipes for Docker networks and firewalls) and say `network: isolated` "
    "in the job or the connection; or say `trusted`, if everybody who reaches the nodes may do that"
)


def warn_of_open_ports(job: JobSpec) -> None:
    """Log one warning if a job's framework serves any client and the network is not declared.

    The job or the connection declares it with ``network``; ``job`` must include the connection's defaults. A job with a
    single process gets no warning, because it serves no other process.
    """
    exposed = get_framework(job.framework).exposed
    if job.network is not None or not exposed or _members(job) < 2:
        return
    ports = f"ports {job.port_range.first} to {job.port_range.last} of the job's nodes, and what the framework adds"
    log.warning("%s (%s). To end this warning, %s", exposed, ports, _REMEDY)


def _members(job: JobSpec) -> int:
    """Return the number of the framework's processes in the job."""
    return sum(
        task.most_instances * task.process_count for name, task in job.tasks.items() if in_cluster(job.role(name))
    )


_VIEW = "viewfs"
_VIEW_NAME = f"{_VIEW}://"  # no HDFS has this name


def hdfs_name_problems(job: JobSpec, opened: OpenCluster) -> list[str]:
    """Return the job's URIs of another HDFS than the connection's, because their files would be searched in this one.

    If it is unknown which HDFS a name stands for, only log a warning, because a cluster's NameNodes have several names.
    Raises ClusterError.
    """
    if opened.nodes_webhdfs is None:
        return []
    known = {uris.parse(opened.staging_dir).authority.lower(), *(each.name.lower() for each in opened.other_hdfs)}
    unknown = {key: name for key, name in _names(job) if name not in known}
    if not unknown:
        return []
    properties = opened.cluster.client_configuration()
    services = set(properties.get("dfs.nameservices", "").lower().replace(",", " ").split())
    addresses = _addresses(properties)
    problems = []
    for key, name in unknown.items():
        if name == _VIEW_NAME or name in services:
            problems.append(f"{key}: {_remedy(name)}")
        elif name not in addresses:
            log.warning(
                "%s: hdfs://%s is taken for the HDFS of %s; if it is another one, name it in the connection's "
                "`other_hdfs`",
                key,
                name,
                opened.staging_dir,
            )
    return problems


def _remedy(name: str) -> str:
    if name == _VIEW_NAME:
        return f"{name}… is no HDFS but a client's view of some: write the hdfs:// URI that it leads to"
    return (
        f"hdfs://{name} is another HDFS than the staging directory's; name it in the connection's `other_hdfs`, such "
        f"as {name}=http://<its NameNode>:9870"
    )


def _addresses(properties: Mapping[str, str]) -> set[str]:
    """Return the addresses of the cluster's NameNodes and of its default file system, mostly names of one HDFS."""
    found = {value.lower() for name, value in properties.items() if name.startswith("dfs.namenode.rpc-address")}
    default = properties.get("fs.defaultFS", "")
    return {*found, uris.parse(default).authority.lower()} if "://" in default else found


def _names(job: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield each key of the job that names an HDFS, with the HDFS' name, or the scheme for a view."""
    for key, uri in _uris(job):
        try:
            parsed = uris.parse(uri)
        except StorageInvalidPath:
            continue  # relative to the DAG's folder, or reported by the code that reads it
        if parsed.scheme in SCHEMES and parsed.authority:
            yield key, parsed.authority.lower()
        elif parsed.scheme == _VIEW:
            yield key, _VIEW_NAME


def _uris(job: JobSpec) -> Iterator[tuple[str, str]]:
    for named in named_resources(job):
        yield named.path, named.resource.source
    for key, _, environment in named_environments(job):
        for part in parts(environment):
            yield key, unmarked(part)[0]
    if job.docker is not None and job.docker.client_config is not None:
        yield "docker.client_config", unmarked(job.docker.client_config)[0]
    for name, read in job.inputs.items():
        for index, path in enumerate(read.paths):
            yield f"inputs.{name}.paths[{index}]", path
    for name, written in job.outputs.items():
        yield f"outputs.{name}.path", written.path


def check_inputs(job: JobSpec, storage: Storage, store_uri: str) -> None:
    """Check that each input has at least as many files as its tasks need. Only that many are listed.

    ``storage`` is the job's own store, which contains ``store_uri``. Raises SourceMissing with all problems,
    StorageError.
    """
    stores = JobStores(storage, store_uri)
    try:
        problems = [problem for name in job.inputs for problem in _input_problems(job, name, store_uri, stores)]
    finally:
        stores.close()
    if problems:
        raise SourceMissing("; ".join(problems))


def _input_problems(job: JobSpec, name: str, store_uri: str, stores: JobStores) -> Iterator[str]:
    spec, least, found = job.inputs[name], shards_needed(job, name), 0
    for index, path in enumerate(spec.paths):
        if uris.scheme(path) == "file" != uris.scheme(store_uri):
            found += least  # a file on the nodes, so assume that it is enough
            continue
        try:
            found += sum(1 for _ in itertools.islice(find_shards_at(name, spec, index, stores), least))
        except BadInputError as error:
            yield str(error)
            found += least  # the number of files is not the problem
    if problem := too_few_shards(job, name, found):
        yield problem


@attrs.frozen
class Amount:
    """A number of shards and their total size in bytes."""

    shards: int
    size: int


@attrs.frozen
class InputSizes:
    """The size of one input, in total and per part."""

    total: Amount
    smallest: Amount | None = None  # part of a static assignment, by bytes
    largest: Amount | None = None


class _TooLongError(Exception):
    pass


class InputSizeScan:
    """Measures all inputs of a job, in its own thread because a store may not answer."""

    def __init__(self, job: JobSpec, storage: Storage, store_uri: str, seconds: float) -> None:
        """``storage`` is the job's own store, which contains ``store_uri``."""
        self._job = job
        self._storage = storage
        self._store_uri = store_uri
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._found: dict[str, InputSizes | str] = {}

    def figures(self) -> dict[str, InputSizes | str]:
        """Return the size of each input by name, or the reason why it is unknown."""
        thread = threading.Thread(target=self._look, name="tony-inputs", daemon=True)
        thread.start()
        thread.join(self._seconds)
        found = dict(self._found)
        return {name: found.get(name, self._too_long) for name in self._job.inputs}

    @property
    def _too_long(self) -> str:
        return f"its store was not read within {self._seconds:g} s"

    def _look(self) -> None:
        stores = JobStores(self._storage, self._store_uri)
        try:
            for name in self._job.inputs:
                self._found[name] = self._figures(name, stores)
        finally:
            stores.close()

    def _figures(self, name: str, stores: JobStores) -> InputSizes | str:
        spec = self._job.inputs[name]
        if any(uris.scheme(path) == "file" != uris.scheme(self._store_uri) for path in spec.paths):
            return "it is on the disks of the nodes"
        try:
            sizes = array("Q", (shard.bytes_to_read for shard in find_shards(name, spec, stores, self._check_time)))
        except _TooLongError:
            return self._too_long
        except Exception as error:  # noqa: BLE001 - whatever the drivers of other stores raise
            return str(error) or type(error).__name__
        total = Amount(len(sizes), sum(sizes))
        if spec.deal is InputDeal.QUEUE:
            return InputSizes(total)
        parts = _parts(sizes, shards_needed(self._job, name))
        return InputSizes(total, parts[0], parts[-1])

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise _TooLongError


def _parts(sizes: Sequence[int], number: int) -> list[Amount]:
    """Return the parts of a static assignment of shards, the smallest first."""
    deal = BalancedAssignment.of(sizes, number)
    parts = [Amount(len(part), sum(sizes[shard] for shard in part)) for part in map(deal.part, range(number))]
    return sorted(parts, key=lambda part: part.size)


def check_outputs(job: JobSpec, storage: Storage, staging_dir: str, training: str) -> None:
    """Check that no output path holds files that are not the training's own.

    ``storage`` is the job's own store, which contains ``staging_dir``. ``training`` is the name of its identity. Raises
    JobRejected with all problems, StorageError.
    """
    stores = JobStores(storage, staging_dir)
    try:
        problems = [
            problem for name in job.outputs for problem in _output_problems(job, name, staging_dir, training, stores)
        ]
    finally:
        stores.close()
    if problems:
        raise JobRejected(problems)


def _output_problems(job: JobSpec, name: str, staging_dir: str, training: str, stores: JobStores) -> Iterator[str]:
    spec = job.outputs[name]
    where = child(child("outputs", name), "path")
    layout = Layout(staging_dir)
    ours = next((each for each in (layout.jobs_dir, layout.cache_dir) if _overlap(spec.path, each)), None)
    if ours:
        yield f"{where}: {spec.path} is mixed up with {ours} of the connection's staging directory; name another"
        return
    if uris.scheme(spec.path) == "file" != uris.scheme(staging_dir):
        return  # a directory on the nodes
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

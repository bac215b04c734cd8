"""Checks of the stores: staging directory, further HDFS, key server and runtime, and a job's inputs and outputs.

``InputSizeScan`` measures the inputs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import time
import zipfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import attrs

from tony_provider.cluster.environments.inspection import pythons_of_runtime
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.findings import Finding, ok, problem, warning
from tony_provider.cluster.http import CONNECT_SECONDS, RequestOptions
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.sources import in_store
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.inputs.finding import BadInputError, find_shards, find_shards_at
from tony_provider.runtime.inputs.shards import BalancedAssignment, shards_needed, too_few_shards
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.publication import target_problem
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_bytes, temporary_name
from tony_provider.runtime.storage.errors import StorageError, StorageNotEmpty, StorageUnsupported
from tony_provider.runtime.storage.stores import JobStores

STAGING = "Staging directory"
DATANODE = "DataNode"
_CONTENT = b"Written by a check of a tony connection; it may be removed.\n"

FindDataNode = Callable[[str], str | None]

_ADVICE = "let the user write there, or name another `staging_dir` in the connection"


def check_staging(storage: Storage, staging_dir: str, find_datanode: FindDataNode | None) -> Iterator[Finding]:
    """Check the staging directory: write a small file, read it back, and remove it.

    :param find_datanode: returns the DataNode address for a URI's data; None if the store has no DataNodes.
    """
    what = f"{STAGING} {staging_dir}"
    directory = uris.join(staging_dir, temporary_name())
    made = _missing(storage, staging_dir)
    try:
        storage.make_directories(directory)
        if find_datanode is not None:
            address = find_datanode(uris.join(directory, "where"))
            if found := _unreachable(address):
                yield found
                return
            yield ok(f"{DATANODE} {address}", "reachable")
        file = uris.join(directory, "check")
        storage.write(file, _CONTENT)
        if read_bytes(storage, file) != _CONTENT:
            yield problem(what, "what was written is not what is read", "look at the store's own health")
            return
        yield ok(what, "a file was written, read and removed")
    except StorageError as error:
        yield problem(what, str(error), "" if error.advice else _ADVICE)
    finally:
        _remove(storage, directory, made)


def _missing(storage: Storage, uri: str) -> list[str]:
    """Return the missing directories of the URI, the innermost first."""
    missing = []
    while uri != uris.parent(uri) and not storage.exists(uri):
        missing.append(uri)
        uri = uris.parent(uri)
    return missing


def _remove(storage: Storage, directory: str, made: list[str]) -> None:
    with contextlib.suppress(StorageError):
        storage.remove(directory, recursive=True)
        for each in made:
            with contextlib.suppress(StorageNotEmpty):  # a job has begun to use it
                storage.remove(each)


def datanode_finder(namenode: str, way: RequestOptions) -> FindDataNode:
    """Return a function that asks a NameNode which DataNode would store a file; it creates no file."""

    def find(uri: str) -> str | None:
        path = quote(uris.parse(uri).path)
        response = way.send("PUT", f"{namenode}/webhdfs/v1{path}?op=CREATE")
        location = urlsplit(response.headers.get("Location", ""))
        if not location.hostname:
            return None
        return f"{location.scheme}://{location.netloc}"

    return find


def _unreachable(address: str | None) -> Finding | None:
    advice = "the NameNode sends us there: this host must resolve and reach the DataNodes' names and HTTP ports"
    if address is None:
        return problem(DATANODE, "the NameNode names none", "see that DataNodes run: hdfs dfsadmin -report")
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return None
    except socket.gaierror:
        return problem(f"{DATANODE} {address}", f"the name {host!r} has no address here", advice)
    except TimeoutError:
        return problem(f"{DATANODE} {address}", f"no connection within {CONNECT_SECONDS:g} s", advice)
    except OSError as error:
        return problem(f"{DATANODE} {address}", f"it cannot be reached: {error.strerror}", advice)


OTHER_HDFS = "Other HDFS"
KEY_SERVER = "Key server"


def check_other_hdfs(opened: OpenCluster) -> Iterator[Finding]:
    """Check that each further HDFS answers. A failure is a warning, because jobs that do not name it still run."""
    for each in opened.other_hdfs:
        what = f"{OTHER_HDFS} {each.name}"
        try:
            opened.storage.status(f"hdfs://{each.name}/")
            yield ok(what, "it answers")
        except StorageError as error:
            yield warning(what, str(error), "check its part of the connection's `other_hdfs`")


def check_key_server(opened: OpenCluster) -> Iterator[Finding]:
    """Check that the key server issues a token, and cancel it.

    A failure is a warning, because jobs without encryption zones still run.
    """
    if opened.tokens is None:
        return
    try:
        if uri := opened.tokens.try_key_server():
            yield ok(f"{KEY_SERVER} {uri}", "it gave a token")
    except (StorageError, ClusterError) as error:
        yield warning(KEY_SERVER, str(error), "set `key_server` in the connection: its URI, or `none`")


RUNTIME = "Runtime"
_BUILD = "make one: airflow tony runtime build --python <versions of the nodes>"


def check_runtime(settings: Settings) -> Iterator[Finding]:
    """Check the runtime on this host, without inspecting the nodes."""
    archive = settings.runtime_archive
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if archive is None:
        yield ok(RUNTIME, f"this host's own packages are sent, for Python {version}; no node was looked at")
    elif "://" not in archive or archive.startswith("file://"):
        yield _archive(Path(archive.removeprefix("file://")))
    if settings.local is not None:
        yield from _interpreters(settings.python)


def check_stored_runtime(opened: OpenCluster) -> Iterator[Finding]:
    """Check that the connection's runtime archive exists on the store."""
    archive, staging_dir = opened.settings.runtime_archive or "", opened.staging_dir
    what = f"{RUNTIME} {archive}"
    if not in_store(archive, staging_dir):
        advice = "copy it there, or name a file on the worker"
        yield problem(what, f"it is in another store than the staging directory ({uris.scheme(staging_dir)})", advice)
    elif not opened.storage.exists(archive):
        yield problem(what, "it is not there", _BUILD)
    else:
        yield ok(what, "it is there; its contents were not looked at")


def is_stored(archive: str | None) -> bool:
    """Return whether the connection's runtime archive is a URI of the store, rather than a file of the worker."""
    return archive is not None and "://" in archive and not archive.startswith("file://")


def _archive(path: Path) -> Finding:
    what = f"{RUNTIME} {path}"
    try:
        with path.open("rb") as file:
            versions = pythons_of_runtime(file).versions
    except FileNotFoundError:
        return problem(what, "it is not on this host", _BUILD)
    except (OSError, zipfile.BadZipFile) as error:
        return problem(what, f"it cannot be read ({error})", _BUILD)
    if not versions:
        return problem(what, "it is no runtime archive", _BUILD)
    return ok(what, f"for Python {', '.join(map(version_text, sorted(versions)))}; no node was looked at")


def _interpreters(pythons: list[str]) -> Iterator[Finding]:
    for python in pythons:
        what = f"Python {python}"
        if os.access(python, os.X_OK):
            yield ok(what, "it is there")
        else:
            yield problem(what, "it is not there, or cannot be run", "mend `python` in the connection")


def input_problems(job: JobSpec, storage: Storage, store_uri: str) -> list[str]:
    """Check that each input has at least as many files as its tasks need. Only that many are listed.

    ``storage`` is the job's own store, which contains ``store_uri``. Raises StorageError.
    """
    with contextlib.closing(JobStores(storage, store_uri)) as stores:
        return [problem for name in job.inputs for problem in _input_problems(job, name, store_uri, stores)]


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
        run_in_threads([self._look], self._seconds, "tony-inputs")
        found = dict(self._found)
        return {name: found.get(name, self._too_long) for name in self._job.inputs}

    @property
    def _too_long(self) -> str:
        return f"its store was not read within {self._seconds:g} s"

    def _look(self) -> None:
        with contextlib.closing(JobStores(self._storage, self._store_uri)) as stores:
            for name in self._job.inputs:
                self._found[name] = self._figures(name, stores)

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


def output_problems(job: JobSpec, storage: Storage, staging_dir: str, training: str) -> list[str]:
    """Check that no output path holds files that are not the training's own.

    ``storage`` is the job's own store, which contains ``staging_dir``. ``training`` is the name of its identity. Raises
    StorageError.
    """
    with contextlib.closing(JobStores(storage, staging_dir)) as stores:
        return [
            problem for name in job.outputs for problem in _output_problems(job, name, staging_dir, training, stores)
        ]


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

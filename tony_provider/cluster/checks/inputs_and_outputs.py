"""Checks of a job's inputs and outputs on their stores, and ``InputSizeScan``, which measures the inputs."""

from __future__ import annotations

import contextlib
import itertools
import time
from array import array
from collections.abc import Iterator, Sequence

import attrs

from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.inputs.finding import BadInputError, find_shards, find_shards_at
from tony_provider.runtime.inputs.shards import BalancedAssignment, shards_needed, too_few_shards
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.publication import target_problem
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageUnsupported
from tony_provider.runtime.storage.stores import JobStores


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

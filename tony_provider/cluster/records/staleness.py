"""Compare the lineage records of trainings with the store, to find models whose data has changed since.

A model is also stale if its training started from the model or checkpoints of a stale training. Directories are listed
once for all models. Files are compared by size and modification time. If only the time of a file differs, the file is
compared by its checksum. Nothing is changed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, cast

import attrs

from tony_provider.cluster.errors import RecordUnreadable, SourceMissing
from tony_provider.cluster.tables import HiveMetastore, metastore_problem, table_lists
from tony_provider.cluster.training.identity import APPLICATIONS, Identity, Layout, labelled_identity, read_record
from tony_provider.cluster.training.results import job_status
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import read_json
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.codec import from_plain, load_json
from tony_provider.runtime.common.concurrency import in_parallel_ordered
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.hadoop.yarn_records import is_application_id
from tony_provider.runtime.inputs.finding import BadInputError, find_shards, find_table_shards
from tony_provider.runtime.inputs.lineage import CHECKSUMS_FILE, FileSet, InputLineage, Lineage
from tony_provider.runtime.inputs.shards import InputShard, listing_uri
from tony_provider.runtime.jobspec.model import InputSpec
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, list_existing, read_whole
from tony_provider.runtime.storage.errors import (
    StorageError,
    StorageNotFound,
    StoragePermissionDenied,
    StorageUnreachable,
)
from tony_provider.runtime.storage.stores import JobStores

_READERS = 16  # threads
_MOST_CHANGES = 100  # changes of a model that a report lists
_CHECKSUMS_LIMIT = 4 << 20  # bytes
_LATEST_MS = 1 << 47  # epoch; in the year 6429
_MOST_NAMES = 64  # directories whose entries are kept by name


class ModelState(StrEnum):
    """Whether a model still matches the data that its training read."""

    CURRENT = "current"
    STALE = "stale"  # files of its own training have changed
    DESCENDED = "stale by descent"  # its training started from a stale or replaced model
    UNKNOWN = "unknown"


class ChangeKind(StrEnum):
    """Difference of a file to the record of a training."""

    CHANGED = "changed"
    REWRITTEN = "rewritten, content unknown"
    ADDED = "added"
    REMOVED = "removed"


@attrs.frozen
class FileChange:
    """A file that differs from the record of a training."""

    input: str  # name of the input
    uri: str
    kind: ChangeKind
    modified_ms: int | None = None  # epoch; None for a removed file


@attrs.frozen(order=True)
class StaleRun:
    """A DAG run with a stale model."""

    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.dag_id} {self.run_id}"


@attrs.frozen(kw_only=True)
class ModelReport:
    """State of the newest model of a training."""

    training: str  # name of its identity
    state: ModelState
    reason: str = ""  # one line; empty for a current model
    lineage: Lineage | None = None  # None if there is no readable record
    changes: list[FileChange] = attrs.field(factory=list)  # at most _MOST_CHANGES
    can_mend: bool = True  # False if a repeated training would start from the same old model
    waits_for: list[str] = attrs.field(factory=list)  # trainings that it started from, and to repeat before
    run: StaleRun | None = None  # run of this Airflow installation that trained the model; None if there is none

    @property
    def is_stale(self) -> bool:
        return self.state in (ModelState.STALE, ModelState.DESCENDED)


_MOST_CACHED = 256 << 20  # bytes of listings; above this limit, the oldest are dropped, and listed again on use


class _ListedOnce(JobStores):
    """The stores of inputs, each with cached results of ``list`` and ``status``."""

    def __init__(self, own: Storage, own_uri: str, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(own, own_uri, variables)
        self._cached: dict[int, _CachedListings] = {}

    def of(self, uri: str) -> Storage:
        storage = super().of(uri)
        with self._lock:
            return cast(Storage, self._cached.setdefault(id(storage), _CachedListings(storage)))


Listed = list[FileStatus]


class _CachedListings:
    """A Storage that lists each directory once. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._listings: dict[str, Future[bytes]] = {}
        self._ended: dict[str, int] = {}  # bytes of each listing that has ended, the oldest first
        self._size = 0  # bytes of all of them
        self._names: dict[str, dict[str, FileStatus]] = {}  # entries by name, of directories used by ``status``

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def list(self, uri: str) -> Listed:
        directory = str(uris.parse(uri)).rstrip("/")
        own: Future[bytes] = Future()
        with self._lock:
            future = self._listings.setdefault(directory, own)
        if future is own:
            return self._fill(uri, directory, own)
        return [
            FileStatus(f"{directory}/{name}", size, modified_ms, is_directory, "", None, is_link, checksum)
            for name, size, modified_ms, is_directory, is_link, checksum in json.loads(future.result())
        ]

    def _fill(self, uri: str, directory: str, future: Future[bytes]) -> Listed:
        try:
            found = self._storage.list(uri)
        except BaseException as error:
            future.set_exception(error)
            self._end(directory, 0)
            raise
        fields = [
            (each.name, each.size, each.modified_ms, each.is_directory, each.is_link, each.checksum) for each in found
        ]
        future.set_result(json.dumps(fields).encode())
        self._end(directory, len(future.result()))
        return found

    def _end(self, directory: str, size: int) -> None:
        with self._lock:
            self._ended[directory] = size
            self._size += size
            while self._size > _MOST_CACHED:
                oldest = next(iter(self._ended))
                self._size -= self._ended.pop(oldest)
                del self._listings[oldest]

    def status(self, uri: str) -> FileStatus:
        """Find the entry in its parent's listing, because the inputs of many dates have the same parent."""
        parent, name = uris.parent(uri), uris.name(uri)
        if not name:
            return self._storage.status(uri)
        found = self._names.get(parent)
        if found is None:
            try:
                found = {each.name: each for each in self.list(parent)}
            except StoragePermissionDenied:
                return self._storage.status(uri)
            with self._lock:
                self._names[parent] = found
                if len(self._names) > _MOST_NAMES:
                    del self._names[next(iter(self._names))]
        if name not in found:
            raise StorageNotFound(uri, "get the status of", "there is no such file or directory")
        return found[name]


@attrs.frozen
class _Selection:
    """Trainings by DAG, time and model."""

    layout: Layout
    dag_ids: Sequence[str] | None
    after_ms: int  # epoch
    model: str | None  # URI

    def may_have(self, identity: Identity) -> bool:
        """Return False if the name alone excludes the training."""
        of_dag = not self.dag_ids or any(identity.may_be_of(dag_id, "") for dag_id in self.dag_ids)
        return of_dag and (self.model is None or self.model.startswith(f"{self.layout.job_dir(identity)}/"))

    def has(self, lineage: Lineage | None) -> bool:
        if lineage is None:
            return True  # without a record, the training cannot be excluded
        of_dag = not self.dag_ids or lineage.labels.get("dag_id") in self.dag_ids
        return of_dag and lineage.finished_ms >= self.after_ms


@attrs.define
class StaleModels:
    """Finds stale models of a staging directory. The caller closes it."""

    storage: Storage
    layout: Layout
    namespace: str  # see identity_of
    metastore: HiveMetastore | None = None
    check_cancelled: Callable[[], None] = lambda: None
    _stores: _ListedOnce = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stores = _ListedOnce(self.storage, self.layout.root)

    def close(self) -> None:
        self._stores.close()

    def reports(
        self, *, dag_ids: Sequence[str] | None = None, after_ms: int = 0, model: str | None = None
    ) -> list[ModelReport]:
        """Return a report of each training with a lineage record, in the order of their ends.

        ``dag_ids``, ``after_ms`` (epoch) and ``model`` (a URI) select trainings. Raises StorageError if a store is
        unreachable.
        """
        wanted = _Selection(self.layout, dag_ids, after_ms, model)
        listed = list_existing(self.storage, self.layout.lineage_dir)
        names = {it.name: (it, file) for file in listed if (it := self.layout.task_of(file.name))}
        own: dict[str, ModelReport] = {}
        self._judge((each for each in names.values() if wanted.may_have(each[0])), own)
        trainings = (Identity.parse(each.name) for each in list_existing(self.storage, self.layout.jobs_dir))
        others = [each for each in trainings if each is not None and each.name not in names and wanted.may_have(each)]
        for report in in_parallel_ordered(self._without_record, others, _READERS, self.check_cancelled):
            if report is not None:
                own[report.training] = report
        shown = [name for name, report in own.items() if wanted.has(report.lineage)]
        # Ancestors outside the selection also need a state.
        while (
            missing := {every.training for each in own.values() for every in _origins(each.lineage)}
            & names.keys() - own.keys()
        ):
            self._judge([names[each] for each in missing], own)
        origins = {each.training: list(_origins(each.lineage)) for each in own.values()}
        descent = _descent(own, origins)
        due = {name for name in own if own[name].is_stale or (name in descent and descent[name].can_mend)}
        reports = []
        for each in shown:
            waits_for = [origin.training for origin in origins[each] if origin.training in due]
            report = attrs.evolve(own[each], waits_for=waits_for)
            cause = descent.get(each)
            if cause and not report.is_stale and cause.state is not report.state:
                report = attrs.evolve(report, **attrs.asdict(cause))
            reports.append(report)
        return sorted(reports, key=lambda each: each.lineage.finished_ms if each.lineage else 0)

    def _judge(self, records: Iterable[tuple[Identity, FileStatus]], own: dict[str, ModelReport]) -> None:
        for report in in_parallel_ordered(self._own_state, records, _READERS, self.check_cancelled):
            own[report.training] = report

    def _without_record(self, identity: Identity) -> ModelReport | None:
        """Return a report if the training's newest application has succeeded, otherwise None."""
        found = list_existing(self.storage, self.layout.applications_dir(identity))
        for newest in sorted(found, key=lambda each: each.modified_ms)[-1:]:
            try:
                status = job_status(self.storage, newest.path)
            except RecordUnreadable as error:
                return ModelReport(training=identity.name, state=ModelState.UNKNOWN, reason=str(error))
            if status is not None and status.state is JobState.SUCCEEDED:
                reason = "the training has no lineage record; see the warnings of its job"
                return ModelReport(training=identity.name, state=ModelState.UNKNOWN, reason=reason)
        return None

    # -- one model, without its ancestors ------------------------------------------------------------------------------

    def _own_state(self, record: tuple[Identity, FileStatus]) -> ModelReport:
        identity, file = record
        training = identity.name
        try:
            lineage = read_record(
                self.storage,
                self.layout.lineage_file(identity),
                Lineage,
                without="the training counts as unknown",
                listed=file,
            )
        except RecordUnreadable as error:
            return ModelReport(training=training, state=ModelState.UNKNOWN, reason=str(error))
        if lineage is None:
            return ModelReport(training=training, state=ModelState.UNKNOWN, reason="its record was removed meanwhile")
        if not is_application_id(lineage.application_id) or not 0 <= lineage.finished_ms < _LATEST_MS:
            reason = "its record is damaged: no application has this ID, or ended at this time"
            return ModelReport(training=training, state=ModelState.UNKNOWN, reason=reason)
        run = None
        if labelled_identity(self.namespace, lineage.labels) == identity:
            run = StaleRun(lineage.labels["dag_id"], lineage.labels["run_id"])
        report = ModelReport(training=training, state=ModelState.UNKNOWN, lineage=lineage, run=run)
        if not lineage.inputs:
            reason = "its job declares no `inputs`, so the files that it read are not known"
            return attrs.evolve(report, reason=reason)
        directory = self.layout.application_dir(identity, lineage.application_id)
        comparison = _Comparison(self, self._stores, lineage, directory)
        try:
            for name, given in lineage.inputs.items():
                comparison.compare(name, given)
        except StorageUnreachable:
            raise
        except (StorageError, SourceMissing, BadInputError, ValueError) as error:
            return attrs.evolve(report, reason=f"its data cannot be compared: {error}")
        if not comparison.number:
            return attrs.evolve(report, state=ModelState.CURRENT)
        return attrs.evolve(report, state=ModelState.STALE, reason=comparison.summary, changes=comparison.changes)


@attrs.define
class _Comparison:
    """The differences between the record of one training and the store."""

    search: StaleModels
    stores: JobStores
    lineage: Lineage
    application_dir: str  # URI. The record, which jobs can write, does not choose it.
    changes: list[FileChange] = attrs.field(factory=list)
    number: int = 0  # of all changes
    _checksums: dict[str, str] | None = None

    @property
    def summary(self) -> str:
        if not self.changes:
            return "its files differ, but their list was removed"
        kinds = [kind for kind in ChangeKind if any(each.kind is kind for each in self.changes)]
        newest = max((each.modified_ms or 0 for each in self.changes), default=0)
        since = f", the latest at {moment(newest)}" if newest else ""
        early = any(each.files_after not in (None, each.files) for each in self.lineage.inputs.values())
        during = "; some files changed during the training" if early else ""
        verb = "differs" if self.number == 1 else "differ"
        return f"{count(self.number, 'file')} {verb} ({', '.join(kinds)}){since}{during}"

    def compare(self, name: str, given: InputLineage) -> None:
        """Add the differences of an input. Raises StorageError, SourceMissing, BadInputError, ValueError."""
        if given.spec.snapshot is not None:
            return  # the files of a snapshot do not change
        own = uris.scheme(self.search.layout.root)
        if own != "file" and any(uris.scheme(path) == "file" for path in given.spec.paths):
            raise SourceMissing(f"inputs.{name} has files that only the nodes can read")
        if FileSet.of(self._files(name, given.spec)) == given.files:
            return
        now = {shard.uri: shard for shard in self._files(name, given.spec)}
        if not now:
            raise SourceMissing(f"inputs.{name} has no files any more")
        try:
            with self.search.storage.open_read(listing_uri(self.application_dir, name)) as lines:
                before = {shard.uri: shard for shard in (load_json(line, InputShard) for line in lines)}
        except StorageNotFound:
            self.number += 1
            return
        for uri, shard in now.items():
            self._add(name, uri, self._change(before.pop(uri, None), shard), shard.modified_ms)
        for uri in before:
            self._add(name, uri, ChangeKind.REMOVED, None)

    def _files(self, name: str, spec: InputSpec) -> Iterator[InputShard]:
        whole = attrs.evolve(spec, split_size=None, checksum=False)
        if spec.table is None:
            return find_shards(name, whole, self.stores, self.search.check_cancelled, may_lack=True)
        if why := metastore_problem(self.search.metastore):
            raise SourceMissing(why)
        listed = table_lists({name: spec}, self.search.metastore, self.search.storage, self.search.layout.root)
        return find_table_shards(name, whole, listed[name], self.stores, self.search.check_cancelled)

    def _add(self, name: str, uri: str, kind: ChangeKind | None, modified_ms: int | None) -> None:
        if kind is not None:
            self.number += 1
            if len(self.changes) < _MOST_CHANGES:
                self.changes.append(FileChange(name, uri, kind, modified_ms))

    def _change(self, before: InputShard | None, now: InputShard) -> ChangeKind | None:
        if before is None:
            return ChangeKind.ADDED
        if before.size != now.size:
            return ChangeKind.CHANGED
        if before.modified_ms == now.modified_ms and (
            before.checksum is None or now.checksum in (None, before.checksum)
        ):
            return None
        known = before.checksum or self._kept_checksums().get(now.uri)
        found = now.checksum or (known and self.stores.of(now.uri).checksum(now.uri))
        # The text before the colon names the algorithm. HDFS has a different one for each layout of blocks.
        if not known or not found or known.partition(":")[0] != found.partition(":")[0]:
            return ChangeKind.REWRITTEN
        return None if known == found else ChangeKind.CHANGED

    def _kept_checksums(self) -> dict[str, str]:
        if self._checksums is None:
            try:
                uri = uris.join(self.application_dir, contract.INPUTS_DIR, CHECKSUMS_FILE)
                data = read_whole(self.search.storage, uri, _CHECKSUMS_LIMIT)
            except StorageNotFound:
                data = b"{}"
            self._checksums = from_plain(read_json(data), dict[str, str])
        return self._checksums


# -- ancestors -------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Cause:
    """Why a model is stale or unknown because of its ancestors. See ModelReport."""

    reason: str
    can_mend: bool = True
    state: ModelState = ModelState.DESCENDED


@attrs.frozen
class _Origin:
    """A model or chain from which a training started."""

    training: str
    used: str  # ID of the application whose model was used, or name of the chain


def _origins(lineage: Lineage | None) -> Iterator[_Origin]:
    """Yield the origins of a training that belong to other trainings, also if the staging directory was moved."""
    if lineage is None:
        return
    for uri in (lineage.warm_start, lineage.continues):
        parts = (uri or "").split("/")
        for training, *below in (parts[index:] for index, part in enumerate(parts) if Identity.parse(part)):
            used = [each for each in below if each != APPLICATIONS]
            if training != lineage.training and used:
                yield _Origin(training, used[0])


def _descent(own: Mapping[str, ModelReport], origins: Mapping[str, Sequence[_Origin]]) -> dict[str, _Cause]:
    """Return why models are stale or unknown by descent, by the name of the training."""
    found: dict[str, _Cause] = {}
    entered: set[str] = set()
    for each in own:
        stack = [each]  # instead of recursion, because a chain of daily models may be long
        while stack:
            name = stack[-1]
            above = [origin.training for origin in origins[name] if origin.training in own]
            if name not in entered and any(training not in entered for training in above):
                entered.add(name)
                stack += [training for training in above if training not in entered]
                continue
            entered.add(name)
            stack.pop()
            causes = (_cause(own[name].lineage, origin, own, found) for origin in origins[name])
            if known := [cause for cause in causes if cause]:
                found[name] = min(known, key=lambda cause: cause.state is ModelState.UNKNOWN)
    return found


def _cause(
    lineage: Lineage | None, origin: _Origin, own: Mapping[str, ModelReport], found: Mapping[str, _Cause]
) -> _Cause | None:
    ancestor = own.get(origin.training)
    if lineage is None or ancestor is None:
        return None
    unknown = _Cause(f"started from the model of {origin.training}, whose state is unknown", False, ModelState.UNKNOWN)
    if ancestor.lineage is None:
        return unknown
    if ancestor.state is ModelState.STALE:
        return _Cause(f"started from the model of {origin.training}, which is stale")
    if origin.used in (ancestor.lineage.application_id, ancestor.lineage.chain_dir.rpartition("/")[2]):
        return found.get(origin.training) or (unknown if ancestor.state is ModelState.UNKNOWN else None)
    reason = f"started from an earlier model of {origin.training}, which was trained again"
    if (lineage.submitted_ms or 0) > ancestor.lineage.finished_ms:
        reason = f"{reason} before; check the `warm_start` of this training"
        return _Cause(reason, can_mend=False)
    return _Cause(f"{reason} since")


# -- training again --------------------------------------------------------------------------------------------------


def stale_runs(reports: Sequence[ModelReport]) -> dict[StaleRun, set[StaleRun]]:
    """Return the runs to repeat, in the order of the reports. For each run, return the stale runs to repeat first.

    Omitted are trainings that no task of a DAG submitted, and trainings that would start from the same old model again,
    for example because their stale ancestor is not among these runs.
    """
    runs = {each.training: each.run for each in reports if each.is_stale and each.can_mend and each.run}
    left = None
    while left != len(runs):  # mostly twice, because ancestors come first
        left = len(runs)
        for each in reports:
            if not runs.keys() >= set(each.waits_for):
                runs.pop(each.training, None)
    found: dict[StaleRun, set[StaleRun]] = {}
    for each in reports:
        if each.training in runs:
            before = {runs[name] for name in each.waits_for}
            found.setdefault(runs[each.training], set()).update(before - {runs[each.training]})
    return found

"""Find and remove what old trainings and built environments have left in the staging directory.

A checkpoint chain or an application's directory (its model, logs, events) may be removed under these conditions:

- Nothing in it was changed for a given time.
- No application of its training lives.
- No model in it is published.
- No other chain continues it or was warm-started from it. If the other chain may be removed, this item follows at the
  next run.

A task's record of previous runs may be removed when the directories of the trainings of all these runs are gone. A
job's history may stay longer than the rest of its directory.

An application stays as long as a chain that it owns. Without the application's result, a finished training would
continue in that chain. Items whose state is unclear stay. From ``cache/``, which jobs share, only half-written files
and unused built environments are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

import attrs

from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.cluster.interface import Application, ApplicationFilter, Cluster
from tony_provider.cluster.records.history import read_specification
from tony_provider.cluster.records.summary import VERSION_FILE, VERSIONS_DIR, read_previous_runs
from tony_provider.cluster.training import results
from tony_provider.cluster.training.checkpoint_chains import TrainingOwners, read_chain
from tony_provider.cluster.training.identity import APPLICATIONS, Identity, Layout, chain_number, read_record
from tony_provider.cluster.training.results import ApplicationFinder, Delivered, tag_of
from tony_provider.runtime.application import clear_outputs
from tony_provider.runtime.application_history import listed
from tony_provider.runtime.checkpoint.stored_checkpoint import OWNERS_DIR
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT, BoundedJsonError, read_json
from tony_provider.runtime.hadoop.yarn_records import is_application_id
from tony_provider.runtime.inputs.lineage import Lineage
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, list_existing, read_whole, walk
from tony_provider.runtime.storage.errors import (
    StorageError,
    StorageInvalidPath,
    StorageNotEmpty,
    StorageNotFound,
    StorageTooLarge,
)
from tony_provider.runtime.storage.stores import leftovers

T = TypeVar("T")

# Before a removal, a full scan is repeated if it is older than _FRESH_SECONDS and than _FRESH_TIMES its duration.
_FRESH_SECONDS = 20.0
_FRESH_TIMES = 5.0
_LONGEST_WRITE = 86400.0  # seconds after which an unfinished file counts as abandoned
_CHEAP_SECONDS = 0.5  # if listing new chains and models takes longer, several items share one list


# Files and directories of an application's history. RESULT_FILE may name a model that was removed. DELIVERED_FILE
# prevents that a cleared or retried task returns that result: the task trains from the start.
_HISTORY = frozenset(
    (
        contract.HISTORY_DIR,
        contract.STATUS_FILE,
        contract.RESULT_FILE,
        contract.DELIVERED_FILE,
        contract.INPUTS_DIR,
    )
)
_CHANGED = "it has changed meanwhile"


class GarbageKind(StrEnum):
    """Kind of a garbage item. The first three belong to a training, the others to all jobs of a staging directory."""

    CHAIN = "chain"
    APPLICATION = "application"
    ADVICE = "advice"  # the record of a task's previous runs
    ENVIRONMENT = "environment"  # built by `airflow tony env build`
    HALF_WRITTEN = "half-written"  # a file of a killed writer


@attrs.frozen
class GarbageItem:
    """A directory or file that is kept or removed as a whole."""

    uri: str
    kind: GarbageKind
    size: int  # bytes that its removal frees
    newest_ms: int  # epoch ms of the last change; for an environment, of its build or last use
    kept_because: str = ""  # why it stays although it is old; empty if it may be removed
    keeps_history: bool = False  # True if only the history of this application stays


@attrs.frozen
class TrainingItem(GarbageItem):
    """A garbage item that belongs to a training."""

    identity: Identity = attrs.field(kw_only=True)


class CannotJudge(ClusterError):  # noqa: N818 - named for what is wrong
    """An unreadable file may name items that are still needed, so nothing is removed."""

    permanent = True


@attrs.frozen
class RemovedGarbage:
    """A garbage item that was to be removed, and the outcome."""

    item: GarbageItem
    problem: str = ""  # why it is still there; empty if it was removed


@attrs.frozen
class Garbage:
    """Finds and removes what old trainings and built environments have left in the staging directory.

    :param models: URIs of further directories below which models are published, as ``versions/<any>/version.json``.
    :param excluded: URIs of directories in the staging directory that are not searched for published models.
    :param history_ms: epoch; an application's history stays if it has changed since then. If None, no history stays.

    All methods raise ClusterError, StorageError, CannotJudge.
    """

    cluster: Cluster
    storage: Storage
    layout: Layout
    models: Sequence[str] = ()
    excluded: Sequence[str] = ()
    history_ms: int | None = None

    def old_items(self, before_ms: int) -> list[GarbageItem]:
        """Return every item that was not changed since ``before_ms`` (epoch), including those that must stay.

        Half-written files are returned if they are older than the longest write. Changes nothing.
        """
        items = [*self._scan(before_ms).old.values(), *self._environments(before_ms)]
        removable = [f"{item.uri}/" for item in items if not item.kept_because]
        return [*items, *(each for each in self._half_written() if not each.uri.startswith(tuple(removable)))]

    def remove(self, wanted: Sequence[GarbageItem], before_ms: int) -> Iterator[RemovedGarbage]:
        """Remove the items of ``wanted`` one by one, after checking each again immediately before its removal.

        Before its application starts, a submission records on the store which items it uses. This method therefore
        checks the store first and the cluster second. The full scan is slow, so it is repeated only when it is too old.
        """
        everything = _TimedCache(lambda: self._scan(before_ms), lambda took: max(_FRESH_SECONDS, _FRESH_TIMES * took))
        news = _TimedCache(lambda: self._news(everything.last), lambda took: took - _CHEAP_SECONDS)
        seen = frozenset[str]()
        for item in wanted:
            if not isinstance(item, TrainingItem):
                is_used = item.kind is GarbageKind.ENVIRONMENT
                yield RemovedGarbage(item, (self._used(item, before_ms) if is_used else "") or self._remove(item))
                continue
            scan = everything.current()
            live = _Live.of(self.cluster)
            needed = news.current(anew=not live.ids <= seen)
            seen = live.ids
            why = _changed(item, scan.old.get(item.uri)) or self._taken_up(item, needed)
            yield RemovedGarbage(item, why or _Live.of(self.cluster).reason(item) or self._remove(item))

    def _scan(self, before_ms: int) -> _Scan:
        live = _Live.of(self.cluster)
        versions: list[str] = []
        items = {item.uri: item for item in self._items(versions)}
        chains = {uri: item for uri, item in items.items() if item.kind is GarbageKind.CHAIN}
        needed = [*self._referenced(chains), *self._published([*versions, *self._other_versions()])]
        old = {uri: item for uri, item in items.items() if item.newest_ms < before_ms}
        judged = {uri: self._judged(item, live, needed) for uri, item in old.items() if uri in chains}
        staying = [item for uri, item in chains.items() if uri not in judged or judged[uri].kept_because]
        needed += self._owners(staying)
        judged |= {uri: self._judged(item, live, needed) for uri, item in old.items() if uri not in chains}
        return _Scan(items, {uri: judged[uri] for uri in old})

    def _news(self, scan: _Scan) -> list[_Needed]:
        """Return the needs of chains that were written since the scan, and of models published outside of ``jobs``."""
        written = []
        for job_dir in self._directories(self.layout.jobs_dir):
            for status in self._directories(job_dir.path):
                if chain_number(status.name) is not None and scan.precedes(status):
                    written.append(status.path)
        return [*self._referenced(written), *self._published(self._other_versions())]

    def _used(self, environment: GarbageItem, before_ms: int) -> str:
        """Return why the environment must stay now, or an empty string if it may be removed."""
        now = next((each for each in self._environments(before_ms) if each.uri == environment.uri), None)
        if now is None or now.newest_ms != environment.newest_ms:
            return "a job has used it meanwhile"
        return now.kept_because

    def _taken_up(self, item: TrainingItem, needed: Sequence[_Needed]) -> str:
        """Return why the store's present state requires the item to stay, or an empty string if it may be removed."""
        why = _need(item, needed)
        if not why and item.kind is GarbageKind.APPLICATION:  # the removable chains of the training are already removed
            why = _need(item, self._owners(self._chains_of(item.identity)))
        if why:
            return why
        try:
            status = self.storage.status(item.uri)
        except StorageNotFound:
            return "it was removed meanwhile"
        if item.kind is GarbageKind.ADVICE:
            return "" if _advice(status, item.identity) == item else _CHANGED
        alone = list(self._item(status, item.kind, item.identity, []))
        return "" if alone == [item] else _CHANGED

    def _remove(self, item: GarbageItem) -> str:
        """Remove the item. Return an empty string, or the reason it is still there."""
        try:
            if not isinstance(item, TrainingItem) or item.kind is GarbageKind.ADVICE:
                self.storage.remove(item.uri, recursive=True)
                return ""
            if item.kind is GarbageKind.APPLICATION:
                clear_outputs(self.storage, item.uri)
                self._forget_lineage(item)
            if item.keeps_history:
                results.mark_delivered(self.storage, item.uri, Delivered.gone())
                for each in self.storage.list(item.uri):
                    if each.name not in _HISTORY:
                        self.storage.remove(each.path, recursive=True)
                return ""
            self.storage.remove(item.uri, recursive=True)
            # Remove the training's own directories once they are empty, and the records of removed chains.
            self.storage.remove(self.layout.applications_dir(item.identity))
            if not list(self._chains_of(item.identity)):
                training = self.layout.job_dir(item.identity)
                self.storage.remove(self.layout.notes_dir(item.identity), recursive=True)
                TrainingOwners(self.storage, training).remove()
                self.storage.remove(training)
        except StorageNotEmpty:
            return ""
        except (StorageError, RecordUnreadable) as error:
            return str(error)
        return ""

    def _forget_lineage(self, application: TrainingItem) -> None:
        """Remove the training's lineage record if it describes the model of this application."""
        file = self.layout.lineage_file(application.identity)
        lineage = read_record(self.storage, file, Lineage, without="`airflow tony stale` omits the model")
        if lineage is not None and lineage.application_id == uris.name(application.uri):
            self.storage.remove(file)

    # -- list the items ----------------------------------------------------------------------------------------------

    def _half_written(self) -> Iterator[GarbageItem]:
        """Yield files that killed writers have left, also in ``cache/``, if they are older than the longest write."""
        before_ms = int((time.time() - _LONGEST_WRITE) * 1000)
        for place in (self.layout.jobs_dir, self.layout.cache_dir):
            for file in leftovers(self.storage, place):
                if 0 < file.modified_ms < before_ms:
                    yield GarbageItem(file.path, GarbageKind.HALF_WRITTEN, file.size, file.modified_ms)

    def _environments(self, before_ms: int) -> list[GarbageItem]:
        """Return the built environments that no job has used since ``before_ms``."""
        old = []
        for directory in self._directories(self.layout.environments_dir):
            files = list(self._below(directory.path, links=False))
            used_ms = max([directory.modified_ms, *(each.modified_ms for each in files)])
            if used_ms < before_ms:
                size = sum(each.size for each in files)
                old.append(GarbageItem(directory.path, GarbageKind.ENVIRONMENT, size, used_ms))
        in_use, unknown = self._environments_in_use() if old else ({}, "")
        return [attrs.evolve(each, kept_because=in_use.get(uris.parse(each.uri).path, unknown)) for each in old]

    def _environments_in_use(self) -> tuple[dict[str, str], str]:
        """Return the environments that live applications use: by path, the reason why each must stay.

        Also return why all other environments must stay, or an empty string if they may be removed.
        """
        found, unknown = {}, ""
        finder = ApplicationFinder(self.cluster, self.storage, self.layout)
        by_tag = {identity.tag: identity for identity in finder.identities()}
        for application in _Live.of(self.cluster).applications:
            identity = by_tag.get(tag_of(application) or "")
            if identity is None or not finder.is_of(identity, application):
                continue  # an application of another staging directory
            directory = self.layout.application_dir(identity, application.id)
            specification = read_specification(self.storage, directory, [])
            if specification is None:
                unknown = f"it is unknown which environments the active {application.id} uses"
                continue
            for each in specification.environments.values():
                if each.built:
                    found[uris.parse(uris.parent(each.python_env)).path] = f"the active {application.id} uses it"
        return found, unknown

    def _items(self, versions: list[str]) -> Iterator[TrainingItem]:
        """Yield all items of trainings. Skip files whose names show that they do not belong to this provider.

        :param versions: list to which the found version files are appended.
        """
        for job_dir in self._directories(self.layout.jobs_dir):
            identity = Identity.parse(job_dir.name)
            # Chains first, because an application may be removed only after the chains that it owns.
            for status in sorted(self._directories(job_dir.path), key=lambda each: each.name == APPLICATIONS):
                if status.name == APPLICATIONS:
                    for application in self._directories(status.path):
                        kind = GarbageKind.APPLICATION if is_application_id(application.name) else None
                        yield from self._item(application, kind, identity, versions)
                else:
                    kind = GarbageKind.CHAIN if chain_number(status.name) is not None else None
                    yield from self._item(status, kind, identity, versions)
        for file in listed(self.storage, self.layout.advice_dir):
            if (task := self.layout.task_of(file.name)) is not None:
                yield _advice(file, task)

    def _item(
        self, status: FileStatus, kind: GarbageKind | None, identity: Identity | None, versions: list[str]
    ) -> Iterator[TrainingItem]:
        size, newest = 0, status.modified_ms
        history = _History()
        if kind is GarbageKind.CHAIN and identity is not None:  # the owner may not have written a file yet
            newest = max(newest, self._taken_ms(identity))
        for each in self._below(status.path, links=False):  # the removal of a link does not remove its target
            size += each.size
            newest = max(newest, each.modified_ms)
            if _is_version(each.path):
                versions.append(each.path)
            if kind is GarbageKind.APPLICATION:
                history.add(each, status.path)
        if kind is None or identity is None:
            return
        keeps_history = self.history_ms is not None and history.newest_ms >= self.history_ms
        if keeps_history and not history.others:
            return  # only the history is left
        size -= history.size if keeps_history else 0
        yield TrainingItem(status.path, kind, size, newest, keeps_history=keeps_history, identity=identity)

    def _taken_ms(self, identity: Identity) -> int:
        """Return when the training got its newest owner (epoch ms), or 0 if it never had an owner."""
        try:
            return self.storage.status(uris.join(self.layout.job_dir(identity), OWNERS_DIR)).modified_ms
        except StorageNotFound:
            return 0

    def _chains_of(self, identity: Identity) -> Iterator[TrainingItem]:
        for status in self._directories(self.layout.job_dir(identity)):
            if chain_number(status.name) is not None:
                yield TrainingItem(status.path, GarbageKind.CHAIN, 0, status.modified_ms, identity=identity)

    def _directories(self, uri: str) -> list[FileStatus]:
        """Return the directories in ``uri``, without symbolic links: these may lead out of the staging directory."""
        found = list_existing(self.storage, uri)
        return [status for status in found if status.is_directory and not status.is_link]

    def _below(self, uri: str, *, links: bool = True) -> Iterator[FileStatus]:
        try:
            yield from walk(self.storage, uri, links=links)
        except StorageNotFound:
            return

    def _other_versions(self) -> Iterator[str]:
        """Yield the version files outside of the trainings' directories."""
        for models in self.models:
            if not self.storage.exists(models):
                raise CannotJudge(f"nothing can be removed: {models}, the directory for models, does not exist")
        layout = self.layout
        ours = {layout.jobs_dir, layout.cache_dir, layout.advice_dir, layout.lineage_dir, *self.excluded}
        places = [each.path for each in self._directories(self.layout.root) if each.path not in ours]
        for place in [*places, *self.models]:
            yield from (each.path for each in self._below(place) if _is_version(each.path))

    # -- find what is needed -----------------------------------------------------------------------------------------

    def _judged(self, item: TrainingItem, live: _Live, needed: Sequence[_Needed]) -> TrainingItem:
        why = live.reason(item) or _need(item, needed)
        if not why and item.kind is GarbageKind.CHAIN and read_chain(self.storage, item.uri) is None:
            why = "it has no chain.json, so its purpose is unknown"
        if not why and item.kind is GarbageKind.ADVICE:
            why = self._known_training(item)
        return attrs.evolve(item, kept_because=why)

    def _known_training(self, item: TrainingItem) -> str:
        """Return why a record of previous runs stays, or an empty string if the trainings of all runs are gone."""
        try:
            runs = read_previous_runs(self.storage, self.layout, item.identity)
            trainings = {uris.name(uris.parent(uris.parent(each.application_dir))) for each in runs.summaries}
        except (RecordUnreadable, StorageInvalidPath) as error:
            return str(error)
        there = [uri for name in trainings if self.storage.exists(uri := uris.join(self.layout.jobs_dir, name))]
        return f"it refers to {there[0]}, which still exists" if there else ""

    def _referenced(self, chains: Iterable[str]) -> Iterator[_Needed]:
        """Yield the chains that these chains continue, and the models from which they were warm-started."""
        for uri in chains:
            try:
                about = read_chain(self.storage, uri)
            except RecordUnreadable as error:
                raise CannotJudge(f"nothing can be removed: {error}") from error
            if about is not None and about.continues:
                yield _Needed(about.continues, uri, f"{uri} continues it")
            if about is not None and about.warm_start:
                yield _Needed(about.warm_start, uri, f"{uri} was warm-started from it")

    def _owners(self, chains: Iterable[TrainingItem]) -> Iterator[_Needed]:
        """Yield the directories of the chains' owners. The result of an owner shows how its chain ended."""
        for item in chains:
            try:
                owners = TrainingOwners(self.storage, self.layout.job_dir(item.identity))
                owner = owners.of_chain(uris.name(item.uri))
            except RecordUnreadable as error:
                raise CannotJudge(f"nothing can be removed: {error}") from error
            if owner is not None:
                directory = self.layout.application_dir(item.identity, owner.application_id)
                yield _Needed(directory, item.uri, f"it owns {item.uri}, which is kept")

    def _published(self, version_files: Iterable[str]) -> Iterator[_Needed]:
        for file in version_files:
            try:
                model = read_json(read_whole(self.storage, file, RECORD_LIMIT))["model_dir"]
                uris.parse(model)
            except StorageNotFound:
                continue  # removed since it was listed
            except (
                BoundedJsonError,
                KeyError,
                TypeError,
                AttributeError,
                StorageInvalidPath,
                StorageTooLarge,
            ) as error:
                raise CannotJudge(
                    f"nothing can be removed: {file} does not name its published model as `model_dir` ({error!r}); "
                    "repair or remove the file"
                ) from error
            yield _Needed(model, "", f"published as {uris.parent(file)}")


@attrs.define
class _History:
    """The history of one application, collected while its directory is walked."""

    size: int = 0
    newest_ms: int = 0  # epoch; 0 if there is no history
    others: bool = False  # whether the directory holds more than the history

    def add(self, status: FileStatus, directory: str) -> None:
        name = status.path[len(directory) :].lstrip("/").partition("/")[0]
        if name not in _HISTORY:
            self.others = True
        elif not status.is_directory:
            self.size += status.size
            if name != contract.DELIVERED_FILE:  # a former removal may have written this file
                self.newest_ms = max(self.newest_ms, status.modified_ms)


@attrs.frozen
class _Scan:
    """Result of a full scan."""

    items: Mapping[str, TrainingItem]  # by URI
    old: Mapping[str, TrainingItem]  # the old items by URI, with ``kept_because`` set if they must stay

    def precedes(self, chain: FileStatus) -> bool:
        """Return whether the chain may have changed since the scan. An unknown modification time counts as a change."""
        known = self.items.get(chain.path)
        return known is None or not 0 < chain.modified_ms <= known.newest_ms


class _TimedCache(Generic[T]):
    """Caches the result of a slow call, and repeats the call when the result is too old.

    :param good_for: returns how many seconds a result is valid, from the duration of its call in seconds.
    """

    def __init__(self, act: Callable[[], T], good_for: Callable[[float], float]) -> None:
        self._act = act
        self._good_for = good_for
        self._until = float("-inf")

    def current(self, *, anew: bool = False) -> T:
        begun = time.monotonic()
        if anew or begun > self._until:
            self.last = self._act()
            ended = time.monotonic()
            self._until = ended + self._good_for(ended - begun)
        return self.last


@attrs.frozen
class _Needed:
    uri: str
    by: str  # URI of the chain that needs it; empty if a published model needs it
    why: str

    def concerns(self, item: GarbageItem) -> bool:
        """Return whether the needed URI is the item, is in the item, or contains the item.

        Return False for the chain that has the need itself. Only paths are compared, because one file system may have
        several names.
        """
        if self.by == item.uri:
            return False
        mine, theirs = uris.parse(self.uri).path, uris.parse(item.uri).path
        return f"{mine}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{mine}/")


def _need(item: GarbageItem, needed: Iterable[_Needed]) -> str:
    """Return why the item is needed, or an empty string if it is not."""
    return next((each.why for each in needed if each.concerns(item)), "")


@attrs.frozen
class _Live:
    """Every live application of this provider, of any user.

    An application of another user also protects the training whose tag it has, because users may share a staging
    directory.
    """

    applications: Sequence[Application]
    by_tag: dict[str, str]
    ids: frozenset[str]

    @classmethod
    def of(cls, cluster: Cluster) -> _Live:
        found = cluster.applications(ApplicationFilter(live=True))
        tags = {tag: application.id for application in found if (tag := tag_of(application)) is not None}
        return cls(found, tags, frozenset(application.id for application in found))

    def reason(self, item: TrainingItem) -> str:
        living = self.by_tag.get(item.identity.tag)
        if living is None and uris.name(item.uri) in self.ids:
            living = uris.name(item.uri)
        return f"{living} of its training is still active" if living else ""


def _advice(file: FileStatus, task: Identity) -> TrainingItem:
    return TrainingItem(file.path, GarbageKind.ADVICE, file.size, file.modified_ms, identity=task)


def _changed(item: GarbageItem, now: GarbageItem | None) -> str:
    if kept_because := item.kept_because or (now.kept_because if now is not None else ""):
        return kept_because
    return "" if item == now else _CHANGED


def _is_version(uri: str) -> bool:
    return uri.endswith(f"/{VERSION_FILE}") and uris.name(uris.parent(uris.parent(uri))) == VERSIONS_DIR

"""The committed checkpoints of a training, as they lie in the storage, and which save each of them holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from posixpath import basename

from tests.checkpoints import files_of
from tests.libraries.events import Event, Events, Files
from tony_provider.runtime.artifacts.manifest import Kind, StoredTree
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import StoredCheckpoint
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.storage.errors import StorageNotFound


@dataclass(frozen=True)
class Commit:
    uri: str
    step: int | None
    written: Mapping[int, Files]  # by rank, what it has written itself
    restored: Mapping[int, Files]  # by rank, what it finds after a restart

    def differences(self, save: Mapping[int, Event], events: Events) -> list[str]:
        """Return how the checkpoint differs from a save, of which every rank has reported its files."""
        found = [f"rank {rank} has written nothing" for rank in self.written.keys() - save.keys()]
        for rank, event in save.items():
            foreign = set(self.written.get(rank, {}).items()) - set(event.files.items())
            missing = set(events.own(event, save[0]).items()) - set(self.restored[rank].items())
            found += [f"rank {rank} did not have {path}" for path, _ in sorted(foreign)]
            found += [f"rank {rank} lacks {path}" for path, _ in sorted(missing)]
        return found


@dataclass
class Commits:
    """The committed checkpoints of one chain. Call ``observe`` often, because the job removes older ones."""

    storage: Storage
    chain: str  # its URI
    ranks: int
    found: dict[str, Commit] = field(default_factory=dict)

    def observe(self) -> list[Commit]:
        """Read new checkpoints. Return all known ones, also those that are removed by now, the oldest first."""
        for stored in Catalog(self.storage, self.chain, read_only=True).list():
            if stored.uri not in self.found:
                try:
                    self.found[stored.uri] = self._read(stored)
                except StorageNotFound:
                    continue  # removed meanwhile
        return list(self.found.values())

    def _read(self, stored: StoredCheckpoint) -> Commit:
        manifest = stored.manifest
        return Commit(
            stored.uri,
            stored.step,
            {each.rank: self._files(stored.uri, each.tree) for each in manifest.trees},
            {rank: self._files(stored.uri, manifest.tree_of(rank)) for rank in range(self.ranks)},
        )

    def _files(self, uri: str, tree: StoredTree) -> Files:
        content = files_of(self.storage, uri, tree)
        found = {path: hashlib.sha256(data).hexdigest()[:16] for path, data in content.items()}
        links = {entry.path: f"link to {basename(entry.target)}" for entry in tree.entries if entry.kind is Kind.LINK}
        times = {entry.path: (entry.mtime_ns, entry.path) for entry in tree.entries}
        return dict(sorted({**found, **links}.items(), key=lambda item: times[item[0]]))

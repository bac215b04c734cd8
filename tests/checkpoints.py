"""Committed checkpoints put into a storage by hand, as a job would have left them."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime.artifacts.manifest import Checksum, Entry, Kind, StoredTree
from tony_provider.runtime.checkpoint.catalog import Catalog, read_stored
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    Manifest,
    RankTree,
    StoredCheckpoint,
    chain_of,
    directory_name,
    objects_directory,
    upload_name,
)
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

FILE = "model.bin"


def new_directory(catalog: Catalog, save: int) -> str:
    """The URI of a checkpoint that is not there yet."""
    return uris.join(catalog.uri, directory_name(save))


def checksum(data: bytes) -> str:
    summed = Checksum()
    summed.update(data)
    return summed.text


def upload(storage: Storage, chain_uri: str, files: Mapping[str, bytes], save: int = 0) -> StoredTree:
    """Put the files into one object, as an executor does with small ones."""
    name = f"{upload_name(save, 0)}-0"
    entries, offset, parents = [], 0, set()
    for path, data in sorted(files.items()):
        place = path
        while place := place.rpartition("/")[0]:
            parents.add(place)
        entries.append(Entry(path, Kind.FILE, 0o600, 10**18, len(data), checksum(data), name if data else "", offset))
        offset += len(data)
    entries += [Entry(place, Kind.DIRECTORY, 0o700, 10**18) for place in parents]
    storage.write(uris.join(objects_directory(chain_uri), name), b"".join(data for _, data in sorted(files.items())))
    return StoredTree(sorted(entries, key=lambda entry: entry.path), {name: offset})


def commit(
    storage: Storage,
    chain_uri: str,
    step: int | None,
    content: bytes = b"weights",
    *,
    save: int | None = None,
    ranks: Mapping[int, Mapping[str, bytes]] | None = None,
    **changes: object,
) -> StoredCheckpoint:
    """Commit a checkpoint; by default of one rank and one file. Saves are counted like steps."""
    catalog = Catalog(storage, chain_uri)
    number = save if save is not None else step or 0
    trees = [
        RankTree(rank, upload(storage, chain_uri, files)) for rank, files in (ranks or {0: {FILE: content}}).items()
    ]
    values = {"save": number, "step": step, "trees": trees, "format": "manifest", "entry": FILE, **changes}
    if ranks is not None and "entry" not in changes:
        values["entry"] = min(ranks[min(ranks)])
    return catalog.commit(new_directory(catalog, number), Manifest(**values))  # type: ignore[arg-type]


def content(storage: Storage, uri: str, rank: int = 0) -> dict[str, bytes]:
    """The files of a rank in a committed checkpoint, by path."""
    return files_of(storage, uri, read_stored(storage, uri).manifest.tree_of(rank))


def files_of(storage: Storage, uri: str, tree: StoredTree) -> dict[str, bytes]:
    """Return the files of a tree of the checkpoint at ``uri``, by path, without links."""
    objects = objects_directory(chain_of(uri))
    found = {}
    for entry in tree.entries:
        if entry.object:
            with storage.open_read(uris.join(objects, entry.object), offset=entry.offset, length=entry.size) as stream:
                found[entry.path] = stream.read()
        elif entry.kind is Kind.FILE:
            found[entry.path] = b""
    return found


def new_objects(storage: Storage, uri: str) -> dict[str, int]:
    """The URIs and sizes of the objects that no older checkpoint has."""
    catalog = Catalog(storage, chain_of(uri), read_only=True)
    stored = read_stored(storage, uri)
    older = {name for one in catalog.list() if one.save < stored.save for name in one.manifest.objects}
    return {
        uris.join(catalog.objects_uri, name): size
        for name, size in stored.manifest.objects.items()
        if name not in older
    }

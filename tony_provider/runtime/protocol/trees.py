"""Stored trees in the messages between master and executors."""

from __future__ import annotations

from tony_provider.runtime.artifacts.manifest import Entry, StoredTree
from tony_provider.runtime.artifacts.tree import Kind
from tony_provider.runtime.protocol import tony_pb2

_KINDS = {kind.value: kind for kind in Kind}


def messages(tree: StoredTree) -> list[tony_pb2.TreeEntry]:
    """Return the messages for the entries of a tree."""
    return [
        tony_pb2.TreeEntry(
            path=each.path,
            kind=each.kind.value,
            mode=each.mode,
            mtime_ns=each.mtime_ns,
            size=each.size,
            checksum=each.checksum,
            object=each.object,
            offset=each.offset,
            target=each.target,
        )
        for each in tree.entries
    ]


def of_message(message: tony_pb2.CheckpointUploaded) -> StoredTree:
    """Return the tree that a task has uploaded."""
    entries = [
        Entry(
            each.path,
            _KINDS.get(each.kind, Kind.FILE),
            each.mode,
            each.mtime_ns,
            each.size,
            each.checksum,
            each.object,
            each.offset,
            each.target,
        )
        for each in message.entries
    ]
    return StoredTree(entries, dict(message.objects))

"""Conversions between protocol messages and objects: addresses of tasks, resume points, entries of checkpoints.

All tasks of a generation receive the addresses as the same compressed bytes. For 10,000 tasks, they have some 100
KiB instead of 600 KiB, far below gRPC's limit for one message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Optional

from google.protobuf.message import DecodeError

from tony_provider.runtime.artifacts.manifest import Entry, Kind, StoredTree
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.bounds import ADDRESSES_LIMIT
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.jobspec.model import Role
from tony_provider.runtime.protocol import tony_pb2


class ClusterPacker:
    """Packer of successive clusters that does not encode unchanged address objects again."""

    def __init__(self) -> None:
        self._encoded: list[tuple[TaskAddress, bytes]] = []

    def pack(self, cluster: ClusterSpec) -> bytes:
        """Return the addresses in the form of ``Rendezvous.cluster``, and remember their encodings."""
        former: Iterable[tuple[Optional[TaskAddress], bytes]] = chain(self._encoded, repeat((None, b"")))
        self._encoded = [
            (task, encoded if task is known else _encode(task)) for task, (known, encoded) in zip(cluster.tasks, former)
        ]
        # Concatenated encodings are one message with the repeated fields of all messages.
        return zlib.compress(b"".join(encoded for _, encoded in self._encoded))


def _encode(task: TaskAddress) -> bytes:
    address = tony_pb2.TaskAddress(
        type=task.type, index=task.index, role=task.role.value, host=task.host, ports=task.ports
    )
    return tony_pb2.Cluster(tasks=[address]).SerializeToString(deterministic=True)


def unpack_cluster(generation: int, packed: bytes) -> ClusterSpec:
    """Return the addresses from the result of ``ClusterPacker.pack``. Raises ValueError for other bytes."""
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(packed, ADDRESSES_LIMIT)
        if not unpacking.eof:
            raise ValueError("the addresses of a cluster are truncated, or too many")
        cluster = tony_pb2.Cluster.FromString(plain)
    except (zlib.error, DecodeError) as error:
        raise ValueError(f"the addresses of a cluster cannot be read: {error}") from error
    return ClusterSpec(
        generation,
        tuple(
            TaskAddress(task.type, task.index, Role(task.role), task.host, dict(task.ports)) for task in cluster.tasks
        ),
    )


def resume_point_of(message: tony_pb2.Resume) -> ResumePoint:
    """Return the resume point in a message."""
    step = message.step if message.HasField("step") else None
    reported_step = message.reported_step if message.HasField("reported_step") else None
    return ResumePoint(
        step, message.uri, message.save, message.saved_ms, message.checksum, message.reported, reported_step
    )


def resume_message(point: Optional[ResumePoint]) -> Optional[tony_pb2.Resume]:
    """Return the message for a resume point, or None if there is no resume point."""
    if point is None:
        return None
    return tony_pb2.Resume(
        step=point.step,
        uri=point.uri,
        save=point.save,
        saved_ms=point.saved_ms,
        checksum=point.checksum,
        reported=point.reported,
        reported_step=point.reported_step,
    )


_KINDS = {kind.value: kind for kind in Kind}


def tree_entries(tree: StoredTree) -> list[tony_pb2.TreeEntry]:
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


def uploaded_tree(message: tony_pb2.CheckpointUploaded) -> StoredTree:
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

"""A container's disk and checkpoint directory in this process, with a clock that the test moves."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest import mock

import attrs

from tony_provider.runtime.artifacts.upload import ArtifactUpload, Throttle
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    Manifest,
    RankTree,
    StoredCheckpoint,
    directory_name,
    objects_directory,
)
from tony_provider.runtime.executor import checkpoint_directory
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory, DirectoryState, Snapshot
from tony_provider.runtime.executor.checkpoint_limits import CheckpointReader
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.jobspec.model import CheckpointSpec
from tony_provider.runtime.storage import LocalStorage, uris

INTERVAL = 1.5  # seconds between two looks of the mirror
_saves = itertools.count(1)


@attrs.define(eq=False)
class Clock:
    """The clocks of checkpoint directories, and the files that processes have open for writing."""

    now: float = 1000.0  # seconds, monotonic
    writing: dict[Path, set[str]] = attrs.field(factory=dict)  # by directory

    _began_ns: int = attrs.field(factory=lambda: time.time_ns() - 1000 * 10**9)  # epoch, when ``now`` was 0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return self._began_ns + round(self.now * 1e9)

    def date(self, path: Path) -> None:
        """Give a file the time of this clock."""
        os.utime(path, ns=(self.time_ns(), self.time_ns()))


@contextmanager
def controlled_clock() -> Iterator[Clock]:
    """Have this clock in checkpoint directories. Readers read in this process, because that is faster."""
    clock = Clock()

    @attrs.define
    class Writers:
        directory: Path

        def scan(self, _: object, now: float) -> set[str]:
            return clock.writing.get(self.directory, set())

    def read(_: CheckpointReader, reader: str, path: Path) -> object:
        return read_here(reader, path)

    with (
        mock.patch.object(checkpoint_directory, "time", clock),
        mock.patch.object(checkpoint_directory, "Writers", Writers),
        mock.patch.object(CheckpointReader, "read", read),
    ):
        yield clock


@attrs.define(eq=False)
class CheckpointContainer:
    """One container: its disk, and what its executor knows."""

    root: Path
    chain: str
    clock: Clock
    rank: int
    directory: CheckpointDirectory

    @classmethod
    def make(
        cls, root: Path, chain: str, clock: Clock, rank: int = 0, spec: CheckpointSpec | None = None
    ) -> CheckpointContainer:
        root.mkdir(exist_ok=True)
        workspace = Workspace(root)
        workspace.prepare()
        container = SimpleNamespace(
            job=SimpleNamespace(checkpoint=spec or CheckpointSpec()), description=SimpleNamespace(chain_dir=chain)
        )
        directory = CheckpointDirectory(cast(ExecutorContainer, container), workspace, LocalStorage())
        return cls(root, chain, clock, rank, directory)

    @property
    def path(self) -> Path:
        """The checkpoint directory."""
        return self.directory.path

    @property
    def set_aside(self) -> Path:
        return Workspace(self.root).set_aside

    def content(self) -> dict[str, bytes]:
        """The bytes of all files of the checkpoint directory, by path."""
        files = (path for path in self.path.rglob("*") if path.is_file())
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in files}

    def begin(self, *, alone: bool = True, world_size: int = 1) -> None:
        self.directory.begin(world_size, [self.rank], alone=alone)

    def look(self, seconds: float = 0.0) -> DirectoryState:
        """Let time pass, with a look at each interval. Returns what the last look has found."""
        end = self.clock.now + seconds
        while True:
            state = self.directory.inspect()
            if self.clock.now >= end:
                return state
            self.clock.now = min(end, self.clock.now + INTERVAL)

    def upload(self, state: DirectoryState, *leave_out: str, reported: int | None = None) -> Snapshot:
        """Upload the directory in this state."""
        name = f"000000-{self.rank}-{secrets.token_hex(4)}"
        upload = ArtifactUpload(LocalStorage(), objects_directory(self.chain), name, Throttle(None))
        return self.directory.snapshot(state.version, leave_out, upload, reported)

    def store(self, state: DirectoryState | None = None, *leave_out: str) -> StoredCheckpoint:
        """Upload the directory, and commit it as the only part of a checkpoint."""
        state = state or self.look(6)
        assert state.ready, state.blocker
        snapshot = self.upload(state, *leave_out)
        stored = commit(self.chain, next(_saves), {self.rank: snapshot})
        self.directory.committed(snapshot, stored.point)
        return stored


def commit(
    chain: str, save: int, parts: Mapping[int, Snapshot], former: StoredCheckpoint | None = None
) -> StoredCheckpoint:
    """Commit the parts of all ranks, and those of a former checkpoint for other ranks."""
    trees = {each.rank: each.tree for each in former.manifest.trees} if former else {}
    trees |= {rank: part.uploaded.tree for rank, part in parts.items()}
    first = parts[min(parts)]
    manifest = Manifest(
        save=save,
        step=first.step,
        trees=[RankTree(rank, trees[rank]) for rank in sorted(trees)],
        format=first.loadable.format if first.loadable else "",
        entry=first.loadable.entry if first.loadable else "",
        saved_ms=max(part.saved_ms for part in parts.values()),
        reported=first.reported,
    )
    catalog = Catalog(LocalStorage(), chain)
    return catalog.commit(uris.join(catalog.uri, directory_name(save)), manifest)

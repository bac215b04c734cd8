"""Saves, copies, deaths and restarts in every order, on real files: all ranks go on from the newest committed save."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import attrs
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tony_provider.runtime.am.shards import Shard, manifest
from tony_provider.runtime.artifacts.throttle import Throttle
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import (
    LocalCheckpoint,
    checkpoints_directory,
    directory_name,
    rank_directory,
)
from tony_provider.runtime.checkpoint.snapshot import Snapshot, SnapshotChanged
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.upload import Upload
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import CheckpointSpec
from tony_provider.runtime.storage import LocalStorage, StorageExists, uris

RANKS = 2
FILE = "snapshot.npz"


@attrs.define(eq=False)
class Rank:
    """A container: a disk, and what its executor knows."""

    root: Path
    directory: CheckpointDirectory

    @classmethod
    def make(cls, root: Path) -> Rank:
        workspace = Workspace(root)
        workspace.prepare()
        container = SimpleNamespace(job=SimpleNamespace(checkpoint=CheckpointSpec()))
        return cls(root, CheckpointDirectory(cast(ExecutorContainer, container), workspace, LocalStorage()))

    @property
    def file(self) -> Path:
        return self.directory.path / FILE

    def trained(self) -> int:
        """What the program finds when it starts: the number of the save, 0 for none."""
        return int(np.load(self.file)["weights"][0]) if self.file.exists() else 0


@attrs.define(eq=False)
class Copy:
    """On its way to the store, taken one step further by each rule."""

    checkpoint: LocalCheckpoint
    snapshot: Snapshot | None = None
    uploaded: tony_pb2.CheckpointUploaded | None = None


class Training(RuleBasedStateMachine):
    """Rank 0's saves are mirrored; rank 1 writes the same file for itself, as many programs do."""

    in_place = st.booleans()  # else by a rename

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="exact-resume-"))
        self.catalog = Catalog(LocalStorage(), f"file://{self.root}/chain")
        self.containers = 0
        self.ranks = [self._container() for _ in range(RANKS)]
        self.saves = 0  # of all generations; each holds its own number
        self.now = 1_700_000_000  # of the file system's clock, in seconds
        self.committed: list[int] = []
        self.copy: Copy | None = None

    def _container(self) -> Rank:
        self.containers += 1
        root = self.root / f"container-{self.containers}"
        root.mkdir()
        return Rank.make(root)

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- the program ---------------------------------------------------------------------------------------------

    @rule(in_place=in_place, ranks=st.sampled_from([(0,), (1,), (0, 1)]))
    def save(self, *, in_place: bool, ranks: tuple[int, ...]) -> None:
        self.saves += 1
        self.now += 1
        for rank in ranks:
            self._write(self.ranks[rank], self.saves, in_place=in_place)

    def _write(self, rank: Rank, number: int, *, in_place: bool) -> None:
        target = rank.file if in_place else rank.root / "draft.npz"
        with target.open("wb") as file:
            np.savez(file, weights=np.full(100, number))
        os.utime(target, (self.now, self.now))
        if not in_place:
            target.replace(rank.file)

    @rule()
    def save_cut_short(self) -> None:
        """It is killed while it writes in place."""
        for rank in self.ranks:
            if rank.file.exists():
                data = rank.file.read_bytes()
                rank.file.write_bytes(data[: len(data) // 2])

    # ---- its mirror, and the commit -------------------------------------------------------------------------------

    @rule(steps=st.sampled_from([4, 1, 2, 3, 8]), final=st.booleans(), answer_arrives=st.booleans())
    def mirror(self, steps: int, *, final: bool, answer_arrives: bool) -> None:
        """So many of its steps; between two rules the program goes on."""
        for _ in range(steps):
            if self.copy is None:
                found = self.ranks[0].directory.newest(None, final)
                self.copy = Copy(found) if found is not None else None
            elif self.copy.snapshot is None:
                self._take(self.copy)
            elif self.copy.uploaded is None:
                self._upload(self.copy)
            else:
                self._commit(self.copy, answer_arrives=answer_arrives)

    def _take(self, copy: Copy) -> None:
        try:
            copy.snapshot = self.ranks[0].directory.take(copy.checkpoint)
        except SnapshotChanged:
            self.copy = None

    def _upload(self, copy: Copy) -> None:
        assert copy.snapshot is not None
        directory, one = self.ranks[0].directory, copy.checkpoint
        uri = uris.join(checkpoints_directory(f"file://{self.root}/chain"), directory_name(directory.next_save))
        try:
            files = Upload(LocalStorage(), Throttle(None)).run(copy.snapshot, rank_directory(uri, 0), overwrite=False)
        except SnapshotChanged:
            copy.snapshot.remove()
            directory.rewritten()
            self.copy = None
            return
        copy.uploaded = tony_pb2.CheckpointUploaded(
            uri=rank_directory(uri, 0),
            format=one.format,
            entry=one.entry,
            files=files,
            save=directory.next_save,
            saved_ms=one.saved_ms,
        )

    def _commit(self, copy: Copy, *, answer_arrives: bool) -> None:
        """The application master's part; its answer may be lost with it."""
        assert copy.snapshot is not None
        assert copy.uploaded is not None
        shard = Shard.of(copy.uploaded, 0, self.catalog.uri)
        try:
            stored = self.catalog.commit(shard.checkpoint, manifest([shard], "application_1_0001", self.now * 1000))
        except StorageExists:  # asked again, since the answer was lost
            stored = self.catalog.load(shard.checkpoint)
        if _number(stored.uri) not in self.committed:
            self.committed.append(_number(stored.uri))
        if answer_arrives:
            self.ranks[0].directory.committed(copy.snapshot, shard.save, shard.checkpoint)
            self.copy = None

    # ---- what dies -----------------------------------------------------------------------------------------------

    @rule(lost=st.sampled_from([(), (1,), (0,), (0, 1)]), prune=st.booleans())
    def restart(self, lost: tuple[int, ...], *, prune: bool) -> None:
        """All user processes are stopped; these containers were lost; the next generation goes on."""
        self.copy = None
        for number in lost:
            shutil.rmtree(self.ranks[number].root)
            self.ranks[number] = self._container()
        self.catalog.remove_unfinished()
        if prune:
            self.catalog.prune(1)
        newest = Catalog(LocalStorage(), f"file://{self.root}/chain").newest()
        for number, rank in enumerate(self.ranks):
            if newest is None:
                rank.directory.empty()
            else:
                rank.directory.restore(newest.point, number, threading.Event())
        started = {rank.trained() for rank in self.ranks}
        assert len(started) == 1, f"the ranks go on from different saves: {started}"
        assert started == {self.committed[-1] if self.committed else 0}, "it is not the newest that was committed"

    @invariant()
    def commits_are_whole_saves_and_never_go_back(self) -> None:
        if getattr(self, "committed", None):
            assert all(number > 0 for number in self.committed)
            assert self.committed == sorted(self.committed)


def _number(uri: str) -> int:
    """Which save a committed checkpoint holds."""
    return int(np.load(Path(uri.removeprefix("file://")) / "rank-0" / FILE)["weights"][0])


def test_every_rank_goes_on_from_the_newest_committed_save() -> None:
    run_state_machine_as_test(Training, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))

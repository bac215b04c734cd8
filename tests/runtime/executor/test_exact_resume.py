"""Saves, snapshots, deaths and restarts in every order, on real files: a training resumes from a committed save.

The program writes saves of one kind, one file after the other, and may be killed between two writes or in the middle
of a file. The storage may refuse, old checkpoints are removed between an upload and its commit, and the application
master may die. The directories, the rounds of snapshots and the catalog are the real ones; the clock is the test's.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.runtime.checkpoint.conftest import torch_like
from tests.runtime.executor.checkpoint_container import INTERVAL, CheckpointContainer, commit, controlled_clock
from tony_provider.runtime.am.snapshot_rounds import SaveEntry, SnapshotRounds, TakeOrder, TaskDirectory
from tony_provider.runtime.artifacts.upload import TreeChanged
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import StoredCheckpoint
from tony_provider.runtime.executor.checkpoint_directory import DirectoryState, Snapshot
from tony_provider.runtime.storage import LocalStorage, StorageTimeout

_TEXT = re.compile(r"save (\d+) of rank (\d+), step (\d+)\n")
_LINES = 20  # of a file; fewer are left of a file that was cut short


@attrs.frozen
class Kind:
    """A kind of saves: the names of the files of one save, in the order in which they are written."""

    names: tuple[str, ...]
    manifest: bool = False
    torch: bool = False  # files with a step in them; otherwise of an unknown format
    renames: bool = False  # each file is written under a temporary name
    link: bool = False  # ``last`` leads to the newest save
    log: bool = False  # each save adds a line to ``train.log``


KINDS = {
    "manifest": Kind(("weights-{step}/a", "weights-{step}/b"), manifest=True),
    "new directories": Kind(("step-{step}/a", "step-{step}/b")),
    "new files": Kind(("G_{step}.bin", "D_{step}.bin"), renames=True),
    "a link": Kind(("step-{step}/a", "step-{step}/b"), link=True),
    "a log": Kind(("step-{step}.bin",), renames=True, log=True),
    "shards": Kind(("step-{step}-rank_{rank}.bin",)),
    "shards in a directory": Kind(("step-{step}/shard-{rank}.bin", "step-{step}/common")),
    "one name, in place": Kind(("last.pt",), torch=True),
    "one name, renamed": Kind(("last.pt",), torch=True, renames=True),
}


@attrs.frozen
class Saved:
    """What a file says of itself."""

    number: int  # of the save, over all lives of the program
    rank: int
    step: int


@attrs.define(eq=False)
class Task:
    """A task and its mirror."""

    container: CheckpointContainer
    base: ResumePoint | None = None
    order: tuple[str, int, TakeOrder] | None = None  # URI, number of the save, and what to do
    state: DirectoryState | None = None  # as it was reported last
    ordered: str = ""  # URI of the newest order

    @property
    def rank(self) -> int:
        return self.container.rank


class Training(RuleBasedStateMachine):
    """One or two tasks that save in step."""

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        ranks=st.sampled_from([1, 2, 2]),
        kept=st.sampled_from([None, 1, 2]),
        removes=st.sampled_from(["all", "first"]),
    )
    def begin(self, kind: str, ranks: int, kept: int | None, removes: str) -> None:
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(controlled_clock())
        self.root = Path(tempfile.mkdtemp(prefix="exact-resume-"))
        self.chain = f"file://{self.root}/chain"
        self.kind, self.kept, self.removes = KINDS[kind], kept, removes
        self.containers = 0
        self.tasks = [Task(self._container(rank)) for rank in range(ranks)]
        self.rounds: SnapshotRounds[Snapshot] = SnapshotRounds()
        self.generation = 0
        self.saves = 0  # of all lives; each file names its save
        self.step = 0
        self.newest: StoredCheckpoint | None = None
        self.stored: dict[str, list[dict[str, bytes]]] = {}  # by URI: the files of each rank, as they were uploaded
        self.parts: dict[str, dict[int, dict[str, bytes]]] = {}
        self.times: dict[str, dict[int, dict[str, int]]] = {}  # likewise, the modification times
        self.refusals = 0  # uploads that the storage will refuse
        self.prunes = False  # before the next commit
        self.origins: dict[int, str] = {}
        self.next_save = 1
        self.loses_answer = False
        for task in self.tasks:
            task.container.directory.empty()
        self._start()

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def _container(self, rank: int) -> CheckpointContainer:
        self.containers += 1
        root = self.root / f"container-{self.containers}"
        return CheckpointContainer.make(root, self.chain, self.clock, rank)

    def _start(self) -> None:
        self.generation += 1
        self.rounds.forget([])
        if self.rounds.round is not None:
            self.rounds.ended(self.rounds.round.uri, committed=False)
        for task in self.tasks:
            task.container.begin(alone=len(self.tasks) == 1, world_size=len(self.tasks))
            task.order = task.state = None

    # ---- the program ---------------------------------------------------------------------------------------------

    @rule(
        pauses=st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.4]), min_size=1, max_size=6),
        together=st.booleans(),
        killed_after=st.none() | st.integers(0, 8),
        after=st.sampled_from([0.0, 1.5, 4.0, 8.0, 20.0]),
    )
    def save(self, *, pauses: list[float], together: bool, killed_after: int | None, after: float) -> None:
        """All ranks save a step, with pauses between two writes. They may be killed before the end.

        In all, the pauses between the files of a save are shorter than the quiet time.
        """
        self.saves += 1
        self.step += 1
        writes = [self._writes(task) for task in self.tasks]
        for number in range(100):
            if not writes:
                break
            rank = number % len(writes) if together else 0
            if next(writes[rank], None) is None:
                writes.pop(rank)
                continue
            if number == killed_after:
                self._end(succeeded=False)
                return
            self._pass(pauses[number % len(pauses)])
        self._pass(after)

    def _writes(self, task: Task) -> Iterator[str]:
        """Write a save, with a stop in the middle of each file and after it."""
        container, step = task.container, self.step
        text = f"save {self.saves} of rank {task.rank}, step {step}\n" * _LINES
        paths = [name.format(step=step, rank=task.rank) for name in self.kind.names]
        for path in paths:
            target = container.path / path
            target.parent.mkdir(exist_ok=True)
            draft = target.with_name(f"{target.name}.tmp") if self.kind.renames else target
            relative = draft.relative_to(container.path).as_posix()
            self.clock.writing[container.path] = {relative}
            whole = torch_like(container.root / "draft", {"step": step, "text": text}, at=0)
            data = whole.read_bytes() if self.kind.torch else text.encode()
            draft.write_bytes(data[: len(data) // 2])
            self.clock.date(draft)
            yield "half"
            draft.write_bytes(data)
            self.clock.now += 0.001
            self.clock.date(draft)
            self.clock.writing.pop(container.path, None)
            if self.kind.renames:
                yield "draft"
                draft.rename(target)
            yield "whole"
        if self.kind.manifest:
            files = [{"path": path, "size": (container.path / path).stat().st_size} for path in paths]
            plain = {"step": step, "entry": paths[0].partition("/")[0], "files": files}
            draft = container.root / "draft"
            draft.write_text(json.dumps(plain))
            self.clock.date(draft)
            draft.rename(container.path / f"step-{step}.tony.json")
            yield "manifest"
        if self.kind.link:
            draft = container.path / "last.tmp"
            draft.symlink_to(container.path / paths[0].partition("/")[0])
            draft.rename(container.path / "last")
            yield "link"
        if self.kind.log:
            with (container.path / "train.log").open("a") as log:
                log.write(f"step {step}\n")
            self.clock.date(container.path / "train.log")
            yield "log"
        self._rotate(task)
        yield "rotated"

    def _rotate(self, task: Task) -> None:
        """Remove the saves before the last ones."""
        is_one_name = "{step}" not in self.kind.names[0]
        kept = 1 if is_one_name else self.kept
        if kept is None or (self.removes == "first" and task.rank):
            return
        for path in sorted(task.container.path.iterdir()):
            number = re.search(r"\d+", path.name)
            if number is None or int(number[0]) > self.step - kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    # ---- time: the mirrors and the application master --------------------------------------------------------------

    @rule(seconds=st.sampled_from([2.0, 7.0, 15.0]))
    def wait(self, seconds: float) -> None:
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while True:
            self._look()
            if self.clock.now >= end:
                return
            self.clock.now = min(end, self.clock.now + INTERVAL)

    def _look(self, **ended: bool) -> None:
        """A look of each mirror, and then one of the application master, as ``mirror.py`` and its commits do them."""
        for task in self.tasks:
            state = task.container.directory.inspect(**ended)
            if state != task.state:
                task.state = state
                self._report(task, state, last=bool(ended))
            if task.order is not None and any(entry.news for entry in state.entries):
                self._take(task, *task.order)
        if self.rounds.broken() and self.rounds.round is not None:
            self.rounds.ended(self.rounds.round.uri, committed=False)
        if self.rounds.round is None:
            self._plan()

    def _report(self, task: Task, state: DirectoryState, *, last: bool) -> None:
        entries = tuple(
            SaveEntry(
                each.name,
                each.group,
                each.news,
                each.first,
                each.step if each.HasField("step") else None,
                dict(each.needs),
                dict(each.sizes),
            )
            for each in state.entries
        )
        base = task.container.directory.base
        reported = TaskDirectory(
            1,
            self.generation,
            self.generation,
            state.version,
            state.ready,
            last,
            entries,
            base.uri if base else "",
            base.save if base else 0,
            state.blocker,
            ordered=task.ordered,
            busy=task.order is not None,
        )
        self.rounds.report(str(task.rank), reported, self.clock.now)

    def _plan(self) -> None:
        ranks = {str(task.rank): task.rank for task in self.tasks}
        plan = self.rounds.plan(ranks, dict.fromkeys(ranks, ""), self.origins, self.clock.now)
        if isinstance(plan, list):
            uri = f"{self.chain}/checkpoints/save-{self.next_save:06}-00000000"
            self.rounds.order(uri, self.next_save, plan)
            for order in plan:
                task = self.tasks[int(order.task)]
                task.order, task.ordered = (uri, self.next_save, order), uri
            self.next_save += 1

    def _take(self, task: Task, uri: str, save: int, order: TakeOrder) -> None:
        """Upload a part, and commit the checkpoint with the last one."""
        task.order = None
        self.refusals, refused = max(0, self.refusals - 1), self.refusals > 0
        refuse = mock.patch.object(LocalStorage, "write", side_effect=StorageTimeout(uri, "write", "it is slow"))
        try:
            with refuse if refused else nullcontext():
                snapshot = task.container.upload(DirectoryState(order.state.version, True), *order.leave_out)
        except (TreeChanged, StorageTimeout):
            task.state = None  # reported again
            return
        content, paths = task.container.content(), {entry.path for entry in snapshot.uploaded.tree.entries}
        sent = {path: data for path, data in content.items() if path in paths}
        self.parts.setdefault(uri, {})[task.rank] = sent
        times = {path: (task.container.path / path).stat().st_mtime_ns for path in sent}
        self.times.setdefault(uri, {})[task.rank] = times
        try:
            whole = self.rounds.add(str(task.rank), uri, snapshot)
        except LookupError:
            return
        if whole is not None:
            self._commit(uri, save, {int(rank): part for rank, part in whole.items()})

    def _commit(self, uri: str, save: int, parts: Mapping[int, Snapshot]) -> None:
        former = self.stored[self.newest.uri] if self.newest else []
        if self.prunes:
            Catalog(LocalStorage(), self.chain).prune(1)
            self.prunes = False
        stored = commit(self.chain, save, parts, self.newest)
        sent = self.parts.pop(uri)
        content = [sent.get(rank, former[rank] if former else {}) for rank in range(len(self.tasks))]
        self.stored[stored.uri] = content
        former_times = self.times.get(self.newest.uri, {}) if self.newest else {}
        self.times[stored.uri] = {**former_times, **self.times.pop(uri)}
        self._check_saves(stored, content)
        self.newest = stored
        self.origins = {
            rank: stored.uri if rank in parts else self.origins.get(rank, "") for rank in range(len(content))
        }
        self.rounds.ended(uri, committed=True)
        if self.loses_answer:
            return  # the application master dies with it
        for rank, part in parts.items():
            self.tasks[rank].container.directory.committed(part, stored.point)
            self.tasks[rank].state = None  # which names another base

    def _check_saves(self, stored: StoredCheckpoint, content: list[dict[str, bytes]]) -> None:
        """A committed checkpoint has whole saves only, and the same newest save of all ranks."""
        newest = [self._newest_of(files) for files in content]
        assert len({each.number for each in newest if each}) == 1, f"{stored.uri} has different saves: {newest}"
        former = self.stored[self.newest.uri] if self.newest else [{} for _ in content]
        # A task that has not stored anything yet may never do so.
        missing = [rank for rank, each in enumerate(newest) if each is None and self._newest_of(former[rank])]
        assert not missing, f"{stored.uri} lacks {missing}"
        if self.newest is not None:
            [before] = {each.number for each in map(self._newest_of, former) if each}
            [number] = {each.number for each in newest if each}
            assert number >= before, f"{stored.uri} goes back from save {before} to save {number}"

    def _newest_of(self, files: Mapping[str, bytes]) -> Saved | None:
        """The newest save in a rank's directory, whose files must all be whole."""
        saves: dict[int, set[str]] = {}
        found: list[Saved] = []
        for path, data in files.items():
            if path.endswith((".tony.json", ".tmp", ".log")) or path.startswith("last/"):
                continue  # a program ignores what it left under a temporary name
            saved = _read(path, data)
            found.append(saved)
            saves.setdefault(saved.number, set()).add(path)
        newest = max(found, key=lambda each: each.number, default=None)
        if newest is not None:
            expected = {name.format(step=newest.step, rank=newest.rank) for name in self.kind.names}
            own = {path for path in saves[newest.number] if path in expected}
            assert own == expected, f"{newest} lacks {expected - own}"
            assert not self.kind.manifest or f"step-{newest.step}.tony.json" in files
        return newest

    # ---- a storage that refuses, removals, and the application master --------------------------------------------

    @rule(refusals=st.integers(1, 3))
    def refuse(self, refusals: int) -> None:
        """The storage refuses the next uploads."""
        self.refusals = refusals

    @rule()
    def prune_before_the_next_commit(self) -> None:
        self.prunes = True

    @rule()
    def prune(self) -> None:
        Catalog(LocalStorage(), self.chain).prune(1)

    @rule(seconds=st.sampled_from([0.0, 1.5, 9.0]))
    def master_dies(self, seconds: float) -> None:
        """Another application master takes over. The processes continue, and the mirrors report again."""
        self.clock.now += seconds
        self.rounds = SnapshotRounds()
        self.origins = {}
        if self.newest is not None:
            self.origins = {each.rank: self.newest.uri for each in self.newest.manifest.trees}
        for task in self.tasks:
            task.order = task.state = None
        self._pass(0.0)

    @invariant()
    def no_object_is_missing(self) -> None:
        if not hasattr(self, "chain"):
            return
        objects = Path(self.chain.removeprefix("file://")) / "objects"
        for stored in Catalog(LocalStorage(), self.chain).list():
            for name, size in stored.manifest.objects.items():
                assert (objects / name).stat().st_size == size

    # ---- ends and restarts -----------------------------------------------------------------------------------------

    @rule(succeeded=st.booleans(), lost=st.sampled_from([(), (0,), (1,), (0, 1)]), prune=st.booleans())
    def restart(self, succeeded: bool, lost: tuple[int, ...], prune: bool) -> None:
        """The processes end, perhaps with their containers. All resume from the newest checkpoint."""
        self._end(succeeded=succeeded)
        self._restart(lost, prune=prune)

    @rule(lost=st.sampled_from([(), (0,), (1,), (0, 1)]), seconds=st.sampled_from([1.0, 8.0]))
    def restart_after_a_lost_answer(self, lost: tuple[int, ...], seconds: float) -> None:
        """The application master dies between a commit and its answer."""
        self.loses_answer = True
        self._pass(seconds)
        self._restart(lost, prune=False)

    def _end(self, *, succeeded: bool) -> None:
        """The processes have ended; the mirrors store what is complete, which may take a while."""
        self.clock.writing.clear()
        for task in self.tasks:
            task.container.directory.ended()
        self._store_last(succeeded=succeeded)
        self._restart((), prune=False)

    def _store_last(self, *, succeeded: bool) -> None:
        for seconds in (0.0, 0.0, 2.0, 10.0, 0.0, 0.0):
            self.clock.now += seconds
            self._look(ended=True, succeeded=succeeded)

    def _restart(self, lost: tuple[int, ...], *, prune: bool) -> None:
        self.loses_answer = False
        for rank in lost:
            if rank < len(self.tasks):
                shutil.rmtree(self.tasks[rank].container.root)
                self.tasks[rank] = Task(self._container(rank))
        catalog = Catalog(LocalStorage(), self.chain)
        catalog.remove_unfinished()
        if prune:
            catalog.prune(1)
        found = catalog.newest()
        assert (found.uri if found else None) == (self.newest.uri if self.newest else None)
        for task in self.tasks:
            if found is None:
                task.container.directory.empty()
                assert task.container.content() == {}
            else:
                task.container.directory.restore(found.point, task.rank, threading.Event())
                assert task.container.content() == self._expected(found, task.rank)
                self._check_times(found, task)
        self.origins = {each.rank: found.uri for each in found.manifest.trees} if found else {}
        newest = self._newest_of(self.stored[found.uri][0]) if found else None
        self.step = newest.step if newest else 0
        self._start()

    def _check_times(self, stored: StoredCheckpoint, task: Task) -> None:
        """The rank's own files have the same order of modification times."""
        times = self.times[stored.uri].get(task.rank, {})
        restored = {path: (task.container.path / path).stat().st_mtime_ns for path in times}
        for one, other in itertools.pairwise(sorted(times, key=times.__getitem__)):
            assert (times[one] < times[other]) == (restored[one] < restored[other]), (one, other)
        last = task.container.path / "last"
        assert not last.is_symlink() or not last.readlink().is_absolute(), (
            "it leads to the directory of a dead container"
        )

    def _expected(self, stored: StoredCheckpoint, rank: int) -> dict[str, bytes]:
        """The rank's own files, and those of the other rank under other names."""
        own, *others = sorted(enumerate(self.stored[stored.uri]), key=lambda each: each[0] != rank)
        return {**(others[0][1] if others else {}), **own[1]}

    @rule(seconds=st.sampled_from([0.0, 1.0, 6.0, 60.0]), killed_after=st.none() | st.integers(0, 8))
    def restart_in_the_same_container(self, seconds: float, killed_after: int | None) -> None:
        """A task that trains alone is killed, perhaps in a save. It keeps its directory."""
        if len(self.tasks) > 1:
            return
        [task] = self.tasks
        before = self._newest_of(self._own(task))
        if killed_after is not None:
            self.saves += 1
            self.step += 1
            for number, _ in enumerate(self._writes(task)):
                if number == killed_after:
                    break
        self.clock.writing.clear()
        task.container.directory.ended()
        self._look(ended=True, succeeded=False)
        self.clock.now += seconds
        task.container.directory.keep(task.rank, threading.Event())
        kept = self._newest_of(self._own(task))
        committed = self._newest_of(self.stored[self.newest.uri][0]) if self.newest else None
        if committed is not None:
            assert kept is not None
            assert kept.number >= committed.number, "it goes back behind the last checkpoint"
        if kept is not None and killed_after is None and before is not None:
            assert kept.number <= before.number
        self.step = kept.step if kept else 0
        self._start()

    def _own(self, task: Task) -> dict[str, bytes]:
        return task.container.content()


def _read(path: str, data: bytes) -> Saved:
    """What a file says of itself. Fails if it is not whole."""
    text = data.decode("latin-1")
    found = _TEXT.findall(text)
    assert len(found) == _LINES, f"{path} is not whole"
    assert len(set(found)) == 1, f"{path} is of two saves"
    return Saved(*map(int, found[0]))


def test_a_training_resumes_from_a_committed_save() -> None:
    run: Any = settings(max_examples=20, stateful_step_count=15, deadline=None)
    run_state_machine_as_test(Training, settings=run)


@pytest.fixture
def training() -> Iterator[Training]:
    made = Training()
    yield made
    made.teardown()


def test_a_program_that_dies_after_its_rotation_resumes_from_the_checkpoint_that_it_removed(training: Training) -> None:
    training.begin(kind="new files", ranks=1, kept=1, removes="all")
    training.save(pauses=[0.0], together=True, killed_after=None, after=20.0)
    assert training.newest is not None
    training.restart_in_the_same_container(seconds=0.0, killed_after=6)
    assert training.step == 1


@pytest.mark.parametrize("kind", ["manifest", "shards"])
def test_a_gang_that_is_killed_in_a_save_stores_no_half_of_it(training: Training, kind: str) -> None:
    training.begin(kind=kind, ranks=2, kept=None, removes="all")
    training.save(pauses=[0.0], together=True, killed_after=None, after=20.0)
    assert training.newest is not None
    # Rank 0 has finished the second save a while ago, and rank 1 is killed before it begins.
    training.saves = training.step = 2
    for _ in training._writes(training.tasks[0]):
        pass
    training._pass(8.0)
    for task in training.tasks:
        task.container.directory.ended()
    training._store_last(succeeded=False)

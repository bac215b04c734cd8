"""Which snapshots the tasks of a gang take together, by what they report of their directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tony_provider.runtime.am.snapshot_rounds import (
    FIRST_WAIT,
    UNMET_WAIT,
    SaveEntry,
    SnapshotRounds,
    TakeOrder,
    TaskDirectory,
    Waiting,
)

RANKS = {"worker:0": 0, "worker:1": 1, "worker:2": 2}


class Gang:
    """The tasks of a job, and the rounds that are planned for them."""

    def __init__(self, ranks: Mapping[str, int] = RANKS, *, independent: bool = False) -> None:
        self.ranks = ranks
        self.groups = {task: task if independent else "gang" for task in ranks}
        self.rounds: SnapshotRounds[str] = SnapshotRounds()
        self.origins: dict[int, str] = {}
        self.now = 0.0
        self.running: list[str] | None = None
        self.versions = dict.fromkeys(ranks, 0)

    def report(self, task: str, *entries: SaveEntry, **more: object) -> None:
        self.versions[task] += 1
        base = self.origins.get(self.ranks.get(task, -1), "")
        start = more.pop("start", 1)
        values = {"ready": not more.get("blocker"), "entries": entries, "base": base, **more}
        directory = TaskDirectory(1, 1, start, self.versions[task], **values)  # type: ignore[arg-type]
        self.rounds.report(task, directory, self.now)

    def plan(self) -> Sequence[TakeOrder] | Waiting | None:
        return self.rounds.plan(self.ranks, self.groups, self.origins, self.now, self.running)

    def ordered(self) -> list[str]:
        plan = self.plan()
        assert isinstance(plan, list), plan
        return [order.task for order in plan]

    def reason(self) -> str:
        plan = self.plan()
        assert isinstance(plan, Waiting), plan
        return plan.reason

    def store(self, uri: str = "save-1") -> list[str]:
        """Take the snapshot that is planned."""
        plan = self.plan()
        assert isinstance(plan, list), plan
        self.rounds.order(uri, 1, plan)
        whole = None
        for order in plan:
            whole = self.rounds.add(order.task, uri, f"part of {order.task}")
        assert whole is not None
        self.rounds.ended(uri, committed=True)
        self.origins.update({self.ranks[order.task]: uri for order in plan})
        return [order.task for order in plan]


def entry(name: str, **more: object) -> SaveEntry:
    return SaveEntry(name, str(more.pop("group", name)), **more)  # type: ignore[arg-type]


@pytest.fixture
def gang() -> Gang:
    return Gang()


def test_without_news_there_is_nothing_to_store(gang: Gang) -> None:
    assert gang.plan() is None
    gang.report("worker:0", entry("config.json", news=False))
    assert gang.plan() is None


# ---- a single writer -----------------------------------------------------------------------------------------------


def test_the_first_save_of_a_gang_waits_for_other_writers_for_a_while(gang: Gang) -> None:
    gang.report("worker:0", entry("step-10"))
    assert "other tasks may be about to" in gang.reason()
    gang.now += FIRST_WAIT
    assert gang.store() == ["worker:0"]
    gang.report("worker:0", entry("step-10", news=False), entry("step-20"))
    assert gang.ordered() == ["worker:0"], "later saves do not wait"


def test_the_time_in_which_a_save_is_written_counts(gang: Gang) -> None:
    gang.report("worker:0", blocker="step-10 was changed a few seconds ago")
    gang.now += FIRST_WAIT
    gang.report("worker:0", entry("step-10"))
    assert gang.ordered() == ["worker:0"]


def test_a_task_without_others_never_waits() -> None:
    alone = Gang({"worker:0": 0})
    alone.report("worker:0", entry("last.pt"))
    assert alone.store() == ["worker:0"]
    alone.report("worker:0", entry("last.pt"))
    assert alone.ordered() == ["worker:0"], "and may overwrite its files"


def test_tasks_that_work_each_for_itself_do_not_wait_for_each_other() -> None:
    tasks = Gang(independent=True)
    tasks.report("worker:0", entry("last.pt"))
    tasks.report("worker:1", entry("last.pt"))
    tasks.report("worker:2", blocker="model.pt is open for writing")
    assert tasks.store() == ["worker:0"]
    assert tasks.store() == ["worker:1"]
    assert tasks.reason() == "in worker:2, model.pt is open for writing" if tasks.plan() else True


# ---- several writers -----------------------------------------------------------------------------------------------


def written(gang: Gang, tasks: Sequence[str], name: str, **more: object) -> None:
    for task in tasks:
        gang.report(task, entry(name, **more))


def test_a_save_is_stored_when_all_writers_have_it(gang: Gang) -> None:
    written(gang, ["worker:0", "worker:1"], "step-10")
    assert gang.store() == ["worker:0", "worker:1"]
    gang.report("worker:0", entry("step-10", news=False), entry("step-20"))
    gang.report("worker:1", entry("step-10", news=False))
    assert gang.reason() == "worker:0 has written step-20, but worker:1 has not written it yet"
    gang.report("worker:1", entry("step-10", news=False), entry("step-20"))
    assert gang.ordered() == ["worker:0", "worker:1"]


def test_a_task_that_is_writing_is_waited_for(gang: Gang) -> None:
    gang.report("worker:0", entry("step-10"))
    gang.report("worker:1", blocker="step-10 was changed a few seconds ago")
    gang.now += 100
    assert gang.reason() == "in worker:1, step-10 was changed a few seconds ago"


def test_names_that_differ_by_the_rank_are_one_save(gang: Gang) -> None:
    for task, rank in (("worker:0", 0), ("worker:1", 1)):
        gang.report(task, entry(f"step-10-rank{rank}.pt", group="step-10-rank*.pt"))
    assert gang.store() == ["worker:0", "worker:1"]
    gang.report("worker:0", entry("step-20-rank0.pt", group="step-20-rank*.pt"))
    gang.report("worker:1", entry("step-10-rank1.pt", group="step-10-rank*.pt", news=False))
    assert "worker:1 has not written it yet" in gang.reason()


def test_files_that_all_tasks_overwrite_need_a_step(gang: Gang) -> None:
    written(gang, ["worker:0", "worker:1"], "last.pt", first=True)
    assert gang.store() == ["worker:0", "worker:1"], "the first save of each is the same"
    written(gang, ["worker:0", "worker:1"], "last.pt")
    plan = gang.plan()
    assert isinstance(plan, Waiting)
    assert plan.refused
    assert "checkpoint.mirror to leader" in plan.reason
    gang.report("worker:0", entry("last.pt", step=20))
    gang.report("worker:1", entry("last.pt", step=10))
    assert gang.reason() == "last.pt is of step 20 in worker:0 and of step 10 in worker:1"
    gang.report("worker:1", entry("last.pt", step=20))
    assert gang.ordered() == ["worker:0", "worker:1"]


def test_a_step_identifies_a_save_whatever_its_names(gang: Gang) -> None:
    gang.report("worker:0", entry("epoch-3-loss-12.pt", step=40))
    gang.report("worker:1", entry("epoch-3-loss-15.pt", step=40))
    assert gang.ordered() == ["worker:0", "worker:1"]


def test_a_file_that_one_task_writes_blocks_nobody(gang: Gang) -> None:
    gang.report("worker:1", entry("vocabulary-1.txt"))
    gang.now += FIRST_WAIT
    assert gang.store() == ["worker:1"]
    gang.report("worker:0", entry("step-10"))
    gang.now += FIRST_WAIT
    assert gang.ordered() == ["worker:0"]


def test_a_task_that_has_ended_blocks_nobody(gang: Gang) -> None:
    written(gang, ["worker:0", "worker:1"], "step-10")
    gang.store()
    gang.report("worker:1", entry("step-10", news=False), last=True)
    assert "worker:1 has not" in (gang.reason() if isinstance(gang.plan(), Waiting) else "worker:1 has not")
    gang.report("worker:1", entry("step-10", news=False), last=True, succeeded=True)
    gang.report("worker:0", entry("step-10", news=False), entry("step-20"))
    assert gang.ordered() == ["worker:0"]


def test_a_task_that_is_gone_blocks_nobody(gang: Gang) -> None:
    written(gang, ["worker:0", "worker:1"], "step-10")
    gang.store()
    gang.report("worker:0", entry("step-20"))
    gang.rounds.forget(["worker:0"])
    gang.ranks = {"worker:0": 0}
    assert gang.ordered() == ["worker:0"]


def test_a_save_needs_the_files_that_it_lists(gang: Gang) -> None:
    needs = {"step-10/.metadata": 1, "step-10/__1_0.distcp": 100}
    gang.report("worker:0", entry("step-10", needs=needs, sizes={"step-10/.metadata": 50}))
    gang.now += FIRST_WAIT
    assert gang.reason() == "step-10 of worker:0 is not complete: no task has step-10/__1_0.distcp"
    gang.report("worker:1", entry("step-10", sizes={"step-10/__1_0.distcp": 99}))
    assert "__1_0.distcp" in gang.reason()
    gang.report("worker:1", entry("step-10", sizes={"step-10/__1_0.distcp": 100}))
    assert gang.ordered() == ["worker:0", "worker:1"]


def test_a_save_that_is_never_complete_does_not_keep_others_from_being_stored(gang: Gang) -> None:
    orphan = entry("old.index", needs={"old.data-00000-of-00001": 1}, sizes={"old.index": 50})
    gang.report("worker:0", orphan)
    gang.now += FIRST_WAIT
    assert "no task has old.data-00000-of-00001" in gang.reason()
    gang.now += UNMET_WAIT
    assert "no task has old.data-00000-of-00001" in gang.reason()  # nothing else is there to store
    gang.report("worker:0", orphan, entry("step-20"))
    gang.now += FIRST_WAIT
    plan = gang.plan()
    assert isinstance(plan, list)
    assert [(order.task, order.leave_out) for order in plan] == [("worker:0", ("old.index",))]


def test_a_save_whose_files_come_late_is_stored_whole(gang: Gang) -> None:
    half = entry("step-10", needs={"step-10/__1_0.distcp": 100}, sizes={"step-10/.metadata": 50})
    gang.report("worker:0", half)
    gang.now += FIRST_WAIT
    assert isinstance(gang.plan(), Waiting)
    gang.now += UNMET_WAIT / 2
    gang.report("worker:1", entry("step-10", sizes={"step-10/__1_0.distcp": 100}))
    assert gang.ordered() == ["worker:0", "worker:1"]
    gang.report("worker:1", entry("step-10", sizes={}))  # once complete, the time begins anew
    gang.now += UNMET_WAIT / 2
    assert isinstance(gang.plan(), Waiting)


def test_the_time_for_missing_files_begins_anew_with_the_processes(gang: Gang) -> None:
    half = entry("last.index", needs={"last.data": 1}, sizes={"last.index": 50})
    gang.report("worker:0", half, entry("log"))
    gang.now += FIRST_WAIT
    assert "no task has last.data" in gang.reason()
    gang.now += UNMET_WAIT
    gang.report("worker:0", half, entry("log"), start=2)
    assert "no task has last.data" in gang.reason()


@pytest.mark.parametrize("above", ["", "orbax/"])
def test_processes_of_orbax_that_wait_for_each_other_need_a_shared_directory(gang: Gang, above: str) -> None:
    save = f"{above}10.orbax-checkpoint-tmp"
    for task in RANKS:
        gang.report(task, entry(save.partition("/")[0], sizes={f"{save}/_METADATA": 5}))
    plan = gang.plan()
    assert isinstance(plan, Waiting)
    assert plan.refused
    assert f"worker:0 and worker:1 have both started {save} in" in plan.reason
    assert "set checkpoint.shared to true" in plan.reason


def test_an_unfinished_save_of_orbax_in_one_task_is_no_reason_to_share() -> None:
    gang = Gang({"worker:0": 0})
    gang.report("worker:0", entry("10.orbax-checkpoint-tmp", sizes={"10.orbax-checkpoint-tmp/_METADATA": 5}))
    assert gang.ordered() == ["worker:0"]


def test_saves_that_the_first_writer_has_removed_are_left_out_elsewhere(gang: Gang) -> None:
    """transformers removes old saves in rank 0 only."""
    written(gang, ["worker:0", "worker:1"], "checkpoint-6")
    gang.store()
    gang.report("worker:0", entry("checkpoint-12"))
    gang.report("worker:1", entry("checkpoint-6", news=False), entry("checkpoint-12"))
    plan = gang.plan()
    assert isinstance(plan, list)
    assert {order.task: order.leave_out for order in plan} == {"worker:0": (), "worker:1": ("checkpoint-6",)}


def test_saves_that_the_first_writer_has_removed_before_they_were_stored_block_nobody(gang: Gang) -> None:
    """transformers again: several saves within seconds, of which only rank 0 removes the old ones."""
    needs = {"checkpoint-6/trainer_state.json": 1}
    gang.report("worker:0", entry("checkpoint-12"))
    gang.report("worker:1", entry("checkpoint-9"), entry("checkpoint-6", needs=needs))
    assert gang.reason() == "worker:0 has written checkpoint-12, but worker:1 has not written it yet"
    gang.report("worker:1", entry("checkpoint-12"), entry("checkpoint-9"), entry("checkpoint-6", needs=needs))
    plan = gang.plan()
    assert isinstance(plan, list)
    assert {order.task: order.leave_out for order in plan} == {
        "worker:0": (),
        "worker:1": ("checkpoint-9", "checkpoint-6"),
    }


def test_a_save_that_another_task_has_removed_stays_in_the_first_one(gang: Gang) -> None:
    needs = {"checkpoint-6/rng_state_1.pth": 1}
    gang.report("worker:0", entry("checkpoint-12"), entry("checkpoint-6", needs=needs))
    gang.report("worker:1", entry("checkpoint-12"))
    plan = gang.plan()
    assert isinstance(plan, list)
    assert {order.task: order.leave_out for order in plan} == {"worker:0": (), "worker:1": ()}


def test_a_save_that_is_newer_than_the_common_one_is_waited_for(gang: Gang) -> None:
    gang.report("worker:0", entry("checkpoint-9"))
    gang.report("worker:1", entry("checkpoint-12"), entry("checkpoint-9"))
    assert gang.reason() == "worker:1 has written checkpoint-12, but worker:0 has not written it yet"


def test_a_task_with_another_base_uploads_its_part_again(gang: Gang) -> None:
    gang.origins = {0: "save-5", 1: "save-5"}
    gang.report("worker:0", entry("step-10"), base="save-5")
    gang.report("worker:1", entry("notes.txt", news=False), base="save-4")
    gang.report("worker:2", base="save-5")
    gang.now += FIRST_WAIT
    assert gang.ordered() == ["worker:0", "worker:1"]


# ---- rounds --------------------------------------------------------------------------------------------------------


def test_a_part_that_was_not_ordered_is_refused(gang: Gang) -> None:
    with pytest.raises(LookupError):
        gang.rounds.add("worker:0", "save-1", "part")
    gang.report("worker:0", entry("step-10"))
    gang.now += FIRST_WAIT
    plan = gang.plan()
    assert isinstance(plan, list)
    gang.rounds.order("save-1", 1, plan)
    for task, uri in (("worker:1", "save-1"), ("worker:0", "save-2")):
        with pytest.raises(LookupError):
            gang.rounds.add(task, uri, "part")
    assert gang.rounds.add("worker:0", "save-1", "part") == {"worker:0": "part"}


def test_the_first_save_does_not_wait_for_tasks_that_cannot_write_any_more(gang: Gang) -> None:
    written(gang, ["worker:0"], "step-10")
    assert gang.reason() == "worker:0 has written step-10, and other tasks may be about to do so"
    gang.report("worker:1", last=True)
    gang.running = ["worker:0", "worker:1"]  # the container of worker:2 is lost
    assert gang.ordered() == ["worker:0"]


def test_a_save_is_not_stored_if_a_task_that_also_writes_such_saves_is_gone(gang: Gang) -> None:
    """Otherwise its part would be of the save before."""
    written(gang, ["worker:0", "worker:1"], "step-10")
    gang.store()
    written(gang, ["worker:0"], "step-20")
    gang.rounds.forget(["worker:0", "worker:2"])
    assert gang.reason() == "worker:0 and worker:1 have written step-20, but worker:1 has ended"


def test_a_report_that_crosses_an_order_repeats_the_order(gang: Gang) -> None:
    written(gang, ["worker:0", "worker:1"], "step-10")
    plan = gang.plan()
    assert isinstance(plan, list)
    gang.rounds.order("save-2", 2, plan)
    state = attrs.evolve(plan[0].state, version=9, ordered="save-1")
    assert gang.rounds.report("worker:0", state, gang.now) == plan[0]
    assert gang.rounds.broken() is None
    assert gang.rounds.report("worker:0", attrs.evolve(state, ordered="save-2", busy=True), gang.now) is None
    assert gang.rounds.broken() is None
    assert gang.rounds.report("worker:0", attrs.evolve(state, start=2), gang.now) is None
    assert gang.rounds.broken() == "worker:0 was restarted"


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_round_is_given_up_if_a_task_could_not_upload_or_is_gone(gang: Gang, is_gone: bool) -> None:
    written(gang, ["worker:0", "worker:1"], "step-10")
    plan = gang.plan()
    assert isinstance(plan, list)
    gang.rounds.order("save-1", 1, plan)
    assert gang.rounds.add("worker:0", "save-1", "part") is None
    assert gang.rounds.broken() is None
    if is_gone:
        gang.rounds.forget(["worker:0"])
    else:
        gang.report("worker:1", entry("step-10"), ordered="save-1")
    assert gang.rounds.broken() == (
        "worker:1 writes no more checkpoints" if is_gone else "worker:1 could not upload its part"
    )
    gang.rounds.ended("save-1", committed=False)
    assert gang.rounds.round is None


# ---- any order of saves and reports --------------------------------------------------------------------------------


@attrs.define
class Disk:
    """The saves of one task: the number of each entry's save."""

    saves: dict[str, int] = attrs.field(factory=dict)
    stored: dict[str, int] = attrs.field(factory=dict)
    writes: dict[str, int] = attrs.field(factory=dict)


class Programs(RuleBasedStateMachine):
    """Tasks of one gang save in step, each at its own pace: no checkpoint ever mixes two saves of one entry."""

    @initialize(kind=st.sampled_from(["named", "overwritten", "with step"]), tasks=st.integers(2, 3))
    def begin(self, kind: str, tasks: int) -> None:
        self.kind = kind
        self.gang = Gang({f"worker:{rank}": rank for rank in range(tasks)})
        self.disks = {task: Disk() for task in self.gang.ranks}
        self.count = dict.fromkeys(self.gang.ranks, 0)
        self.reported: dict[str, dict[str, int]] = {}

    @rule(rank=st.integers(0, 2))
    def save(self, rank: int) -> None:
        """A task saves once more; no task is ahead of another by more than one save, as collectives ensure."""
        task = f"worker:{rank}"
        if task not in self.disks or self.count[task] > min(self.count.values()):
            return
        self.count[task] += 1
        name = f"step-{self.count[task]}" if self.kind == "named" else "last.pt"
        disk = self.disks[task]
        disk.saves[name] = self.count[task]
        disk.writes[name] = disk.writes.get(name, 0) + 1

    @rule(rank=st.integers(0, 2), busy=st.booleans())
    def report(self, rank: int, busy: bool) -> None:
        task = f"worker:{rank}"
        if task not in self.disks:
            return
        disk = self.disks[task]
        entries = [
            entry(
                name,
                news=disk.stored.get(name) != number,
                first=disk.writes[name] <= 1,
                step=number if self.kind == "with step" else None,
            )
            for name, number in reversed(disk.saves.items())
        ]
        if busy:
            self.gang.report(task, blocker="it is writing")
        else:
            self.gang.report(task, *entries)
            self.reported[task] = dict(disk.saves)

    @rule(seconds=st.floats(0, 20))
    def plan(self, seconds: float) -> None:
        self.gang.now += seconds
        plan = self.gang.plan()
        if not isinstance(plan, list):
            return
        self.gang.rounds.order("save", 1, plan)
        for order in plan:
            self.gang.rounds.add(order.task, "save", "part")
            self.disks[order.task].stored = dict(self.reported[order.task])
        self.gang.rounds.ended("save", committed=True)
        self.gang.origins.update({self.gang.ranks[order.task]: "save" for order in plan})
        stored = {disk.stored["last.pt"] for disk in self.disks.values() if "last.pt" in disk.stored}
        assert len(stored) <= 1, stored


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(deadline=None, max_examples=150, stateful_step_count=30)

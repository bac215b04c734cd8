"""Commits are granted to those who may, and resume points are found, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import pytest

from tests.runtime.am.chains import APPLICATION_ID, OTHER, commit, describe, keeping, own, ownership, upload
from tony_provider.runtime.am import checkpoint_commits as module
from tony_provider.runtime.am import snapshot_rounds
from tony_provider.runtime.am.checkpoint_chain import OwnChain, SupersededError
from tony_provider.runtime.am.checkpoint_commits import CheckpointCommits, CommitRequest
from tony_provider.runtime.am.session.actions import Note, NoteFailedResume
from tony_provider.runtime.am.session.restart_policy import CommittedSave
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_events import (
    CheckpointBlocked,
    CheckpointCommitted,
    Event,
    JobFailed,
    QuotaWarning,
    ResumeChosen,
    ResumeNotChosen,
)
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint import catalog
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import concurrency
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.model import CheckpointSpec
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.storage import FileStatus, LocalStorage, Storage, StorageUnreachable
from tony_provider.runtime.storage.base import QuotaRoom

DEADLINE = 20
E = TypeVar("E")


@attrs.define(eq=False)
class Heard:
    """In the session's place: remembers what it is told."""

    ranks: dict[str, int] = attrs.field(factory=lambda: {"worker:0": 0})
    refused: str | None = None
    saved: CommittedSave | None = None  # of the newest commit
    told: asyncio.Queue[Event] = attrs.field(factory=asyncio.Queue)

    def mirror_ranks(self) -> list[tuple[str, int]]:
        return list(self.ranks.items())

    def commit_refusal(self, name: str, attempt: int, generation: int, start: int) -> str | None:
        return self.refused

    def still_copies(self, name: str) -> bool:
        return self.refused is None

    def checkpoint_groups(self) -> dict[str, str]:
        return dict.fromkeys(self.ranks, "gang")

    def take(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            self.saved = event.save
        self.told.put_nowait(event)

    async def next(self, kind: type[E]) -> E:
        """What it is told next, which must be of this kind."""
        event = await asyncio.wait_for(self.told.get(), DEADLINE)
        assert isinstance(event, kind)
        return event


class Flaky(LocalStorage):
    """Does not answer when its directories are listed, as long as it is told so."""

    down = False

    def list(self, uri: str) -> list[FileStatus]:
        if self.down:
            raise StorageUnreachable(uri, "list", "nobody answers")
        return super().list(uri)


@attrs.define(eq=False)
class Setting:
    directory: Path
    session: Heard
    checkpoints: CheckpointCommits
    running: asyncio.Future[None]
    notes: list[Note]
    sent: list[tuple[str, tony_pb2.ToExecutor]]
    versions: int = 0

    @property
    def chain(self) -> Path:
        return self.directory / "chain-0001"

    def report(self, task: str = "worker:0", step: int = 20, *, generation: int = 1, **more: Any) -> None:
        """Say that the directory of a task has a new save."""
        self.versions += 1
        state = tony_pb2.CheckpointState(generation=generation, start=1, version=self.versions, ready=True, **more)
        state.entries.add(name=f"ckpt-{step}", group=f"ckpt-{step}", news=True)
        self.checkpoints.reported(task, 1, state)

    async def order(self) -> dict[str, tony_pb2.TakeSnapshot]:
        """The orders that come next, by task."""
        before = len(self.sent)
        async with asyncio.timeout(DEADLINE):
            while len(self.sent) == before:
                self.checkpoints.look()
                await asyncio.sleep(0.01)
        return {task: message.take_snapshot for task, message in self.sent[before:]}

    def asked(self, message: tony_pb2.CheckpointUploaded, task: str = "worker:0") -> asyncio.Future[tuple[bool, str]]:
        answer: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        request = CommitRequest(task, 1, message, lambda granted, reason, _: answer.set_result((granted, reason)))
        self.checkpoints.uploaded(request)
        return answer

    async def ask(self, message: tony_pb2.CheckpointUploaded, task: str = "worker:0") -> tuple[bool, str]:
        return await asyncio.wait_for(self.asked(message, task), DEADLINE)

    async def ordered(self, step: int, **report: Any) -> tony_pb2.CheckpointUploaded:
        """What worker:0 has uploaded by an order."""
        self.report(step=step, **report)
        return upload(self.chain, (await self.order())["worker:0"], step)

    async def store(self, step: int, **report: Any) -> ResumePoint:
        """Have a checkpoint committed."""
        uploaded = await self.ordered(step, **report)
        assert await self.ask(uploaded) == (True, "")
        point = (await self.session.next(CheckpointCommitted)).point
        assert (point.step, point.save, point.uri) == (step, uploaded.save, uploaded.uri)
        return point

    def committed(self) -> list[int | None]:
        """The steps of all checkpoints in the chain."""
        return [stored.step for stored in Catalog(LocalStorage(), self.chain.as_uri()).list()]


Make = Callable[..., Setting]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[tuple[Setting, OwnChain]] = []

    def make(description: ApplicationDescription | None = None, storage: Storage | None = None) -> Setting:
        session, notes = Heard(), cast(list[Note], [])
        description = description or describe(tmp_path)
        chain = OwnChain(ownership(description, storage=storage))

        sent: list[tuple[str, tony_pb2.ToExecutor]] = []
        checkpoints = CheckpointCommits(
            description,
            chain,
            cast(Session, session),
            session.take,
            notes.append,
            lambda task, message: sent.append((task, message)),
        )
        setting = Setting(tmp_path, session, checkpoints, asyncio.ensure_future(checkpoints.run()), notes, sent)
        made.append((setting, chain))
        return setting

    own(tmp_path, APPLICATION_ID)
    yield make
    for setting, chain in made:
        setting.running.cancel()
        await asyncio.gather(setting.running, return_exceptions=True)
        chain.close()


async def test_upload_is_committed_and_the_session_told(make: Make) -> None:
    setting = make()
    await setting.store(20)
    setting.checkpoints.choose(2)
    chosen = await setting.session.next(ResumeChosen)
    assert chosen.resume
    assert (chosen.generation, chosen.resume.step) == (2, 20)


async def test_a_commit_says_what_shows_progress(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    uploaded.content_step, uploaded.process_seconds = 18, 3.5
    assert await setting.ask(uploaded) == (True, "")
    assert setting.session.saved == CommittedSave(("worker:0",), 18, is_new=True, process_seconds=3.5)
    again = await setting.ordered(30)
    for entry, before in zip(again.entries, uploaded.entries, strict=True):
        entry.checksum, entry.size = before.checksum, before.size
    assert await setting.ask(again) == (True, "")
    assert setting.session.saved == CommittedSave(("worker:0",), None, is_new=False, process_seconds=0.0)


async def test_no_checkpoint_is_an_answer_too(make: Make) -> None:
    setting = make()
    setting.checkpoints.choose(1)
    assert await setting.session.next(ResumeChosen) == ResumeChosen(1, None)


class Full(LocalStorage):
    """Simulates a quota that leaves few bytes."""

    def quota_room(self, uri: str) -> QuotaRoom:
        return QuotaRoom(50, None)


async def test_people_are_warned_before_a_quota_is_used_up(make: Make) -> None:
    setting = make(storage=Full())
    await setting.store(20)
    assert "leaves 50 B" in (await setting.session.next(QuotaWarning)).text
    await setting.store(30)
    assert setting.session.told.empty()


async def test_no_checkpoint_in_the_chain_to_resume_from_ends_the_job(tmp_path: Path, make: Make) -> None:
    setting = make(describe(tmp_path, continues=(tmp_path / "chain-0000").as_uri()))
    setting.checkpoints.choose(1)
    failed = await setting.session.next(ResumeNotChosen)
    assert failed.generation == 1
    assert "no intact checkpoint is left" in failed.reason


async def test_only_the_newest_stay_and_the_one_in_use(tmp_path: Path, make: Make) -> None:
    setting = make(keeping(describe(tmp_path), CheckpointSpec(keep=2, keep_every=100)))
    for step in (100, 110):
        commit(setting.chain, step)
    setting.checkpoints.choose(1)
    assert (await setting.session.next(ResumeChosen)).generation == 1
    for step in (120, 130, 140):
        await setting.store(step)
    setting.checkpoints.choose(1)  # once it answers, all before it is done
    await setting.session.next(ResumeChosen)
    assert setting.committed() == [100, 110, 130, 140]


async def test_session_s_refusal_is_told_with_its_reason(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    setting.session.refused = "attempt 1 of worker:0 was replaced"
    assert await setting.ask(uploaded) == (False, "attempt 1 of worker:0 was replaced")
    assert setting.committed() == []
    assert [(note.event, note.task) for note in setting.notes] == [("checkpoint_refused", "worker:0")]


async def test_what_was_not_ordered_is_not_committed(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    assert (await setting.ask(uploaded, "worker:1"))[0] is False
    elsewhere = tony_pb2.CheckpointUploaded.FromString(uploaded.SerializeToString())
    elsewhere.uri = "file:///elsewhere/save-000001-00000000"
    assert "no snapshot of this task was ordered" in (await setting.ask(elsewhere))[1]
    assert await setting.ask(uploaded) == (True, "")


@pytest.mark.parametrize("damage", ["object", "path"])
async def test_an_upload_that_is_not_complete_is_refused_and_sent_again(make: Make, damage: str) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    if damage == "object":
        for path in (setting.chain / "objects").iterdir():
            path.write_bytes(b"cut")
    else:
        uploaded.entries[-1].path = "../outside"
    granted, why = await setting.ask(uploaded)
    assert not granted
    assert "damaged" in why
    assert setting.committed() == []
    await setting.store(20)


async def test_a_checkpoint_whose_manifest_is_too_large_is_not_sent_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MANIFEST_LIMIT", 300)
    setting = make()
    answer = asyncio.get_running_loop().create_future()
    uploaded = await setting.ordered(20)
    setting.checkpoints.uploaded(
        CommitRequest(
            "worker:0", 1, uploaded, lambda granted, reason, resend: answer.set_result((granted, reason, resend))
        )
    )
    granted, reason, resend = await asyncio.wait_for(answer, DEADLINE)
    assert (granted, resend) == (False, False)
    assert "fewer and larger files" in reason


async def test_a_lost_answer_is_repeated(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    assert await setting.ask(uploaded) == (True, "")
    assert await setting.ask(uploaded) == (True, "")


async def test_commit_of_a_former_master_whose_answer_was_lost(make: Make) -> None:
    former = make()
    uploaded = await former.ordered(20)
    assert await former.ask(uploaded) == (True, "")
    assert await make().ask(uploaded) == (True, "")


async def test_a_new_master_keeps_the_parts_of_tasks_that_have_nothing_new(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_rounds, "FIRST_WAIT", 0.0)
    former = make()
    former.session.ranks = {"worker:0": 0, "worker:1": 1}
    for task in former.session.ranks:
        former.report(task)
    for task, wanted in (await former.order()).items():
        former.asked(upload(former.chain, wanted, 10, rank=former.session.ranks[task]), task)
    await former.session.next(CheckpointCommitted)
    setting = make()
    setting.session.ranks = {"worker:0": 0, "worker:1": 1}
    setting.checkpoints.reported("worker:1", 1, _nothing_new(Catalog(LocalStorage(), setting.chain.as_uri())))
    await setting.store(30, save=1)
    newest = Catalog(LocalStorage(), setting.chain.as_uri()).newest()
    assert newest is not None
    paths = {each.rank: [entry.path for entry in each.tree.entries] for each in newest.manifest.trees}
    assert paths == {0: ["ckpt-30", "ckpt-30/part-0"], 1: ["ckpt-10", "ckpt-10/part-1"]}


async def test_a_task_that_goes_back_alone_leaves_the_parts_of_the_others(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may have succeeded, and never upload their parts again."""
    monkeypatch.setattr(Heard, "checkpoint_groups", lambda session: {task: task for task in session.ranks})
    setting = make()
    setting.session.ranks = {"worker:0": 0, "worker:1": 1}
    for step, task in ((10, "worker:0"), (20, "worker:1")):
        setting.report(task, step)
        wanted = (await setting.order())[task]
        setting.asked(upload(setting.chain, wanted, step, rank=setting.session.ranks[task]), task)
        point = (await setting.session.next(CheckpointCommitted)).point
        assert point.step == step
    for _ in range(2):
        setting.checkpoints.note_failed_resume(NoteFailedResume(point, "worker exit 1", "it crashed"))
    setting.checkpoints.choose(1, tasks=["worker:0"])
    chosen = (await setting.session.next(ResumeChosen)).resume
    assert chosen
    assert chosen.step == 10
    await setting.store(30)
    newest = Catalog(LocalStorage(), setting.chain.as_uri()).newest()
    assert newest is not None
    paths = {each.rank: [entry.path for entry in each.tree.entries] for each in newest.manifest.trees}
    assert paths == {0: ["ckpt-30", "ckpt-30/part-0"], 1: ["ckpt-20", "ckpt-20/part-1"]}


def _nothing_new(catalog: Catalog) -> tony_pb2.CheckpointState:
    newest = catalog.newest()
    return tony_pb2.CheckpointState(generation=1, start=1, version=9, ready=True, base=newest.uri if newest else "")


async def test_older_generation_commits_nothing_once_a_newer_one_chooses(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    setting.checkpoints.choose(2)
    assert await setting.ask(uploaded) == (False, "generation 2 has begun")
    await setting.session.next(ResumeChosen)
    await setting.store(30, generation=2)


async def test_executor_that_is_given_up_while_its_commit_waits_gets_none(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    answer = setting.asked(uploaded)
    setting.session.refused = "worker:0 was lost"
    assert await asyncio.wait_for(answer, DEADLINE) == (False, "worker:0 was lost")
    assert setting.committed() == []


async def test_parts_of_all_ranks_are_one_commit_and_answered_then(make: Make) -> None:
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task in setting.session.ranks:
        setting.report(task, save=6)
    orders = await setting.order()
    assert {task: order.save for task, order in orders.items()} == {"chief:0": 7, "worker:0": 7}
    waiting = setting.asked(upload(setting.chain, orders["worker:0"], 20, rank=1), "worker:0")
    assert await setting.ask(upload(setting.chain, orders["chief:0"], 20), "chief:0") == (True, "")
    assert await asyncio.wait_for(waiting, DEADLINE) == (True, "")
    point = (await setting.session.next(CheckpointCommitted)).point
    assert (point.step, point.save, point.uri) == (20, 7, orders["chief:0"].uri)


async def test_parts_of_a_former_generation_are_refused_when_the_next_one_begins(make: Make) -> None:
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task in setting.session.ranks:
        setting.report(task)
    orders = await setting.order()
    waiting = setting.asked(upload(setting.chain, orders["chief:0"], 20), "chief:0")
    setting.checkpoints.choose(2)
    assert await asyncio.wait_for(waiting, DEADLINE) == (False, "generation 2 has begun")
    assert await setting.session.next(ResumeChosen) == ResumeChosen(2, None)


async def test_a_round_that_a_task_gives_up_is_refused_for_the_others(make: Make) -> None:
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task in setting.session.ranks:
        setting.report(task)
    orders = await setting.order()
    waiting = setting.asked(upload(setting.chain, orders["chief:0"], 20), "chief:0")
    setting.report("worker:0", ordered=orders["worker:0"].uri)
    setting.checkpoints.look()
    assert await asyncio.wait_for(waiting, DEADLINE) == (False, "worker:0 could not upload its part")
    assert {task for task, _ in setting.sent[2:]} == {"chief:0", "worker:0"}, "the next round has begun"


async def test_a_report_that_crosses_an_order_does_not_end_the_round(make: Make) -> None:
    setting = make()
    setting.report(step=20)
    order = (await setting.order())["worker:0"]
    setting.report(step=30, ordered="another order")
    [(_, repeated)] = setting.sent[1:]
    assert repeated.take_snapshot == order
    setting.report(step=30, ordered=order.uri, busy=True)
    setting.checkpoints.look()
    assert len(setting.sent) == 2
    assert await setting.ask(upload(setting.chain, order, 20)) == (True, "")


async def test_a_checkpoint_whose_commit_is_under_way_is_refused_by_no_report(make: Make) -> None:
    """Seen: the task removed its objects after the refusal, and then the checkpoint was committed without them."""
    setting = make()
    setting.report(step=20)
    order = (await setting.order())["worker:0"]
    answer = setting.asked(upload(setting.chain, order, 20))
    setting.report(step=30, ordered=order.uri)
    setting.checkpoints.look()
    assert await asyncio.wait_for(answer, DEADLINE) == (True, "")
    assert setting.committed() == [20]
    assert [message.take_snapshot.save for _, message in setting.sent] == [1]


async def test_a_repeated_request_is_answered_once_by_the_commit(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    first, second = setting.asked(uploaded), setting.asked(uploaded)
    assert await asyncio.wait_for(first, DEADLINE) == (True, "")
    assert await asyncio.wait_for(second, DEADLINE) == (True, "")


async def test_what_prevents_a_checkpoint_is_told_and_those_who_have_ended_are_let_go(make: Make) -> None:
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task in setting.session.ranks:
        state = tony_pb2.CheckpointState(generation=1, start=1, version=1, ready=True, last=True)
        state.entries.add(name="last.pt", group="last.pt", news=True)
        setting.checkpoints.reported(task, 1, state)
    orders = await setting.order()
    assert {task: order.wanted for task, order in orders.items()} == {"chief:0": False, "worker:0": False}
    assert "checkpoint.mirror to leader" in orders["chief:0"].reason
    [note] = setting.notes
    assert note.event == "checkpoint_waiting"
    assert "worker:0 both write last.pt" in note.message
    assert await setting.session.next(CheckpointBlocked) == CheckpointBlocked(note.message)


async def test_a_reason_that_names_another_save_each_time_is_told_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    setting.report("worker:0", 10)
    async with asyncio.timeout(DEADLINE):
        while not setting.notes:
            setting.checkpoints.look()
            await asyncio.sleep(0.01)
    for step in (20, 30):
        setting.report("worker:0", step)
        setting.checkpoints.look()
    assert [note.event for note in setting.notes] == ["checkpoint_waiting"]
    problem = (await setting.session.next(CheckpointBlocked)).reason
    assert problem.startswith("no checkpoint can be stored: worker:0 has written ckpt-10")


async def test_a_commit_takes_the_warning_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    setting = make()
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    setting.report("worker:0", 10)
    async with asyncio.timeout(DEADLINE):
        while not setting.notes:
            setting.checkpoints.look()
            await asyncio.sleep(0.01)
    await setting.session.next(CheckpointBlocked)
    setting.report("chief:0", 10)
    orders = await setting.order()
    answers = [setting.asked(upload(setting.chain, order, 10), task) for task, order in orders.items()]
    assert [await answer for answer in answers] == [(True, "")] * 2
    await setting.session.next(CheckpointCommitted)
    assert await setting.session.next(CheckpointBlocked) == CheckpointBlocked("")


async def test_a_commit_that_waits_for_the_storage_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "FIRST_PAUSE", 0.01)
    setting = make()
    uploaded = await setting.ordered(20)
    checkpoints = setting.chain / "checkpoints"
    checkpoints.touch()  # no directory can be made in it
    answer = setting.asked(uploaded)
    problem = (await setting.session.next(CheckpointBlocked)).reason
    assert problem.startswith("no checkpoint can be stored: cannot make directory ")
    assert [note.event for note in setting.notes] == ["checkpoint_waiting"]
    checkpoints.unlink()
    assert await asyncio.wait_for(answer, DEADLINE) == (True, "")
    await setting.session.next(CheckpointCommitted)
    assert await setting.session.next(CheckpointBlocked) == CheckpointBlocked("")


async def test_a_save_without_a_step_is_newer_than_the_one_before(make: Make) -> None:
    setting = make()
    for save in (1, 2):
        uploaded = await setting.ordered(5)
        uploaded.ClearField("step")
        assert await setting.ask(uploaded) == (True, "")
        point = (await setting.session.next(CheckpointCommitted)).point
        assert (point.step, point.save) == (None, save)
    setting.checkpoints.choose(1)
    chosen = (await setting.session.next(ResumeChosen)).resume
    assert chosen
    assert chosen.save == 2


async def test_store_that_is_away_delays_the_choice(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "FIRST_PAUSE", 0.01)
    storage = Flaky()
    setting = make(storage=storage)
    committed = commit(setting.chain, 20)
    storage.down = True
    setting.checkpoints.choose(1)
    async with asyncio.timeout(DEADLINE):
        while not setting.notes:  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.01)
    storage.down = False
    assert await setting.session.next(ResumeChosen) == ResumeChosen(1, committed.point)
    assert [note.event for note in setting.notes] == ["store_unavailable"]


async def test_store_that_stays_away_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHOICE_TIMEOUT", 0.5)
    storage = Flaky()
    storage.down = True
    setting = make(storage=storage)
    setting.checkpoints.choose(1)
    failed = await setting.session.next(ResumeNotChosen)
    assert failed.generation == 1
    assert "nobody answers" in failed.reason


async def test_damaged_checkpoint_is_not_chosen_again(make: Make) -> None:
    setting = make()
    older, damaged = commit(setting.chain, 10), commit(setting.chain, 20)
    setting.checkpoints.set_aside(ResumePoint(20, damaged.uri), "other bytes")
    setting.checkpoints.choose(1)
    assert await setting.session.next(ResumeChosen) == ResumeChosen(1, older.point)


async def test_newer_application_ends_this_one(make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    own(setting.directory, OTHER)
    granted, why = await setting.ask(uploaded)
    assert not granted
    assert OTHER in why
    assert await setting.session.next(JobFailed) == JobFailed(FailureKind.FENCED, why)
    assert setting.committed() == []
    assert await setting.ask(uploaded) == (False, "another application owns the checkpoint chain")


async def test_newer_master_ends_this_one_without_a_word(tmp_path: Path, make: Make) -> None:
    setting = make()
    uploaded = await setting.ordered(20)
    ownership(describe(tmp_path), attempt=2).announce(Address("there", 1))
    setting.checkpoints.uploaded(CommitRequest("worker:0", 1, uploaded, lambda *_: None))
    with pytest.raises(SupersededError):
        await asyncio.wait_for(asyncio.shield(setting.running), DEADLINE)
    assert setting.session.told.empty()
    assert setting.committed() == []


async def test_job_without_a_chain(tmp_path: Path, make: Make) -> None:
    setting = make(describe(tmp_path, chain_dir=""))
    setting.report()
    setting.checkpoints.look()
    assert setting.sent == []
    wanted = tony_pb2.TakeSnapshot(generation=1, start=1, uri=f"{setting.chain.as_uri()}/checkpoints/x")
    assert (await setting.ask(upload(setting.chain, wanted, 1)))[0] is False
    setting.checkpoints.choose(1)
    assert await setting.session.next(ResumeChosen) == ResumeChosen(1, None)

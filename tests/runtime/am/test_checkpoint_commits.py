"""Commits are granted to those who may, and resume points are found, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from tests.runtime.am.chains import APPLICATION_ID, OTHER, Uploaded, commit, describe, keeping, own, ownership, upload
from tony_provider.runtime import retrying
from tony_provider.runtime.address import Address
from tony_provider.runtime.am import checkpoint_commits as module
from tony_provider.runtime.am.checkpoint_commits import CheckpointCommits, CommitRequest
from tony_provider.runtime.am.own_chain import OwnChain
from tony_provider.runtime.am.owner import SupersededError
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.checkpoint_model import directory_name
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.spec.model import CheckpointSpec, MirrorScope
from tony_provider.runtime.storage import FileStatus, LocalStorage, Storage, StorageUnreachable

DEADLINE = 30


@attrs.define(eq=False)
class Heard:
    """In the session's place: remembers what it is told."""

    ranks: dict[str, int] = attrs.field(factory=lambda: {"worker:0": 0})
    refused: str | None = None
    told: asyncio.Queue[tuple[Any, ...]] = attrs.field(factory=asyncio.Queue)

    def mirror_ranks(self) -> list[tuple[str, int]]:
        return list(self.ranks.items())

    def commit_refusal(self, name: str, attempt: int, generation: int, start: int) -> str | None:
        return self.refused

    def still_copies(self, name: str) -> bool:
        return self.refused is None

    def __getattr__(self, name: str) -> Callable[..., list[Note]]:
        def told(*given: Any, **_: Any) -> list[Note]:
            self.told.put_nowait((name, *given[:-1]))  # without the time
            return []

        return told

    async def next(self) -> tuple[Any, ...]:
        return await asyncio.wait_for(self.told.get(), DEADLINE)


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

    @property
    def chain(self) -> Path:
        return self.directory / "chain-0001"

    def asked(self, message: tony_pb2.CheckpointUploaded, task: str = "worker:0") -> asyncio.Future[tuple[bool, str]]:
        answer: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        request = CommitRequest(task, 1, message, lambda granted, reason: answer.set_result((granted, reason)))
        self.checkpoints.uploaded(request)
        return answer

    async def ask(self, message: tony_pb2.CheckpointUploaded, task: str = "worker:0") -> tuple[bool, str]:
        return await asyncio.wait_for(self.asked(message, task), DEADLINE)

    async def committed(self, uploaded: Uploaded) -> None:
        assert await self.ask(uploaded.message()) == (True, "")
        told, point = await self.session.next()
        assert (told, point.step, point.save, point.uri) == (
            "checkpoint_committed",
            uploaded.step,
            uploaded.step,
            uploaded.uri,
        )
        assert uploaded.committed


Make = Callable[..., Setting]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[tuple[Setting, OwnChain]] = []

    def make(description: ApplicationDescription | None = None, storage: Storage | None = None) -> Setting:
        session, notes = Heard(), cast(list[Note], [])
        description = description or describe(tmp_path)
        chain = OwnChain(ownership(description, storage=storage))

        def post(step: Callable[[float], list[Any]]) -> None:
            notes.extend(step(0.0))

        sent: list[tuple[str, tony_pb2.ToExecutor]] = []
        checkpoints = CheckpointCommits(
            description, chain, cast(Session, session), post, lambda task, message: sent.append((task, message))
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
    await setting.committed(upload(setting.chain, 20))
    setting.checkpoints.choose(2)
    name, generation, resume = await setting.session.next()
    assert (name, generation, resume.step) == ("resume_chosen", 2, 20)


async def test_no_checkpoint_is_an_answer_too(make: Make) -> None:
    setting = make()
    setting.checkpoints.choose(1)
    assert await setting.session.next() == ("resume_chosen", 1, None)


async def test_only_the_newest_stay_and_the_one_in_use(tmp_path: Path, make: Make) -> None:
    setting = make(keeping(describe(tmp_path), CheckpointSpec(keep_last=2, keep_every=100)))
    for step in (100, 110):
        commit(setting.chain, step)
    setting.checkpoints.choose(1)
    assert (await setting.session.next())[:2] == ("resume_chosen", 1)
    for step in (120, 130, 140):
        await setting.committed(upload(setting.chain, step))
    setting.checkpoints.choose(1)  # once it answers, all before it is done
    await setting.session.next()
    kept = sorted(int(path.name.split("-")[3]) for path in (setting.chain / "checkpoints").iterdir())
    assert kept == [100, 110, 130, 140]


async def test_session_s_refusal_is_told_with_its_reason(make: Make) -> None:
    setting = make()
    setting.session.refused = "attempt 1 of worker:0 was replaced"
    uploaded = upload(setting.chain, 20)
    assert await setting.ask(uploaded.message()) == (False, "attempt 1 of worker:0 was replaced")
    assert not uploaded.committed
    assert [(note.event, note.task) for note in setting.notes] == [("checkpoint_refused", "worker:0")]


@pytest.mark.parametrize(
    ("task", "changes", "reason"),
    [
        ("worker:1", {}, "checkpoints of worker:1 are not kept"),
        ("worker:0", {"uri": "file:///elsewhere/rank-0"}, "is not where rank 0 is to put its checkpoints"),
    ],
)
async def test_upload_that_is_none(make: Make, task: str, changes: dict[str, Any], reason: str) -> None:
    setting = make()
    message = upload(setting.chain, 20).message()
    for name, value in changes.items():
        setattr(message, name, value)
    granted, why = await setting.ask(message, task)
    assert not granted
    assert reason in why


async def test_files_that_are_not_all_there_are_no_checkpoint(make: Make) -> None:
    setting = make()
    uploaded = upload(setting.chain, 20)
    next((uploaded.directory / "rank-0").iterdir()).write_bytes(b"cut")
    granted, why = await setting.ask(uploaded.message())
    assert not granted
    assert "damaged" in why
    assert not uploaded.committed


async def test_step_that_is_there_already_is_not_committed_again_but_a_lost_answer_is_repeated(make: Make) -> None:
    setting = make()
    first, again = upload(setting.chain, 20), upload(setting.chain, 20)
    await setting.committed(first)
    assert await setting.ask(again.message()) == (False, "step 20 is on the store already")
    assert await setting.ask(first.message()) == (True, "")


async def test_commit_of_a_former_master_whose_answer_was_lost(make: Make) -> None:
    uploaded = upload(make().chain, 20)
    await make().committed(uploaded)
    await make().committed(uploaded)


async def test_older_generation_commits_nothing_once_a_newer_one_chooses(make: Make) -> None:
    setting = make()
    uploaded = upload(setting.chain, 20)
    setting.checkpoints.choose(2)
    assert await setting.ask(uploaded.message(generation=1)) == (False, "generation 2 has begun")
    await setting.session.next()
    newer = upload(setting.chain, 30)
    assert await setting.ask(newer.message(generation=2)) == (True, "")


async def test_executor_that_is_given_up_while_its_commit_waits_gets_none(make: Make) -> None:
    setting = make()
    uploaded = upload(setting.chain, 20)
    answer = setting.asked(uploaded.message())
    setting.session.refused = "worker:0 was lost"
    assert await asyncio.wait_for(answer, DEADLINE) == (False, "worker:0 was lost")
    assert not uploaded.committed


async def test_parts_of_all_ranks_are_one_commit_and_answered_then(tmp_path: Path, make: Make) -> None:
    setting = make(keeping(describe(tmp_path), CheckpointSpec(mirror=MirrorScope.ALL)))
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task, steps in (("chief:0", [10, 20, 30]), ("worker:0", [10, 20])):
        held = tony_pb2.CheckpointsHeld(generation=1, start=1, steps=steps, save=6)
        setting.checkpoints.held(task, 1, held)
    setting.checkpoints.look()
    named = {task: message.copy_checkpoint for task, message in setting.sent}
    assert {task: (copy.step, copy.save) for task, copy in named.items()} == {"chief:0": (20, 7), "worker:0": (20, 7)}
    directory = Path(named["chief:0"].uri.removeprefix("file://"))
    parts = [upload(setting.chain, 20, rank=rank, name=directory.name) for rank in (0, 1)]
    messages = [part.message() for part in parts]
    for message in messages:
        message.save = 7
    waiting = setting.asked(messages[1], "worker:0")
    assert await setting.ask(messages[0], "chief:0") == (True, "")
    assert await asyncio.wait_for(waiting, DEADLINE) == (True, "")
    told, point = await setting.session.next()
    assert (told, point.step, point.save, point.uri) == ("checkpoint_committed", 20, 7, parts[0].uri)
    assert parts[0].committed


async def test_parts_of_a_former_generation_are_refused_when_the_next_one_begins(tmp_path: Path, make: Make) -> None:
    setting = make(keeping(describe(tmp_path), CheckpointSpec(mirror=MirrorScope.ALL)))
    setting.session.ranks = {"chief:0": 0, "worker:0": 1}
    for task in setting.session.ranks:
        setting.checkpoints.held(task, 1, tony_pb2.CheckpointsHeld(generation=1, start=1, steps=[20]))
    setting.checkpoints.look()
    named = setting.sent[0][1].copy_checkpoint
    part = upload(setting.chain, 20, name=named.uri.rpartition("/")[2]).message()
    part.save = named.save
    waiting = setting.asked(part, "chief:0")
    setting.checkpoints.choose(2)
    assert await asyncio.wait_for(waiting, DEADLINE) == (False, "generation 2 has begun")
    assert await setting.session.next() == ("resume_chosen", 2, None)


async def test_a_save_without_a_step_is_newer_than_the_one_before(make: Make) -> None:
    setting = make()
    for save in (1, 2):
        uploaded = upload(setting.chain, 5, name=directory_name(save))
        message = uploaded.message()
        message.ClearField("step")
        message.save = save
        assert await setting.ask(message) == (True, "")
        _, point = await setting.session.next()
        assert (point.step, point.save) == (None, save)
    setting.checkpoints.choose(1)
    assert (await setting.session.next())[2].save == 2


async def test_store_that_is_away_delays_the_choice(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0.01)
    storage = Flaky()
    setting = make(storage=storage)
    committed = commit(setting.chain, 20)
    storage.down = True
    setting.checkpoints.choose(1)
    async with asyncio.timeout(DEADLINE):
        while not setting.notes:  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.01)
    storage.down = False
    assert await setting.session.next() == ("resume_chosen", 1, committed.point)
    assert [note.event for note in setting.notes] == ["store_unavailable"]


async def test_store_that_stays_away_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHOICE_TIMEOUT", 0.5)
    storage = Flaky()
    storage.down = True
    setting = make(storage=storage)
    setting.checkpoints.choose(1)
    name, generation, reason = await setting.session.next()
    assert (name, generation) == ("resume_failed", 1)
    assert "nobody answers" in reason


async def test_damaged_checkpoint_is_not_chosen_again(make: Make) -> None:
    setting = make()
    older, damaged = commit(setting.chain, 10), commit(setting.chain, 20)
    setting.checkpoints.set_aside(ResumePoint(20, damaged.uri), "other bytes")
    setting.checkpoints.choose(1)
    assert await setting.session.next() == ("resume_chosen", 1, older.point)


async def test_newer_application_ends_this_one(make: Make) -> None:
    setting = make()
    uploaded = upload(setting.chain, 20)
    own(setting.directory, OTHER)
    granted, why = await setting.ask(uploaded.message())
    assert not granted
    assert OTHER in why
    assert await setting.session.next() == ("fail", FailureKind.FENCED, why)
    assert not uploaded.committed
    assert await setting.ask(uploaded.message()) == (False, "another application owns the checkpoint chain")


async def test_newer_master_ends_this_one_without_a_word(tmp_path: Path, make: Make) -> None:
    setting = make()
    uploaded = upload(setting.chain, 20)
    ownership(describe(tmp_path), attempt=2).announce(Address("there", 1))
    setting.checkpoints.uploaded(CommitRequest("worker:0", 1, uploaded.message(), lambda *_: None))
    with pytest.raises(SupersededError):
        await asyncio.wait_for(asyncio.shield(setting.running), DEADLINE)
    assert setting.session.told.empty()
    assert not uploaded.committed


async def test_job_without_a_chain(tmp_path: Path, make: Make) -> None:
    setting = make(describe(tmp_path, chain_dir=""))
    assert (await setting.ask(upload(setting.chain, 1).message()))[0] is False
    setting.checkpoints.choose(1)
    assert await setting.session.next() == ("resume_chosen", 1, None)

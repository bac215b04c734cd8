"""The chain that an application trains on: what it goes on from, what is cleared away, what stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.runtime.am.chains import APPLICATION_ID, OTHER, commit, describe, files_of, own, ownership
from tony_provider.runtime.am.checkpoint_chain import FencedError, OwnChain, SupersededError
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import NoCheckpointLeft, StoredCheckpoint
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.model import AfterSuccess
from tony_provider.runtime.storage import LocalStorage, local_path, uris

DEADLINE = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    own(tmp_path, APPLICATION_ID)
    return tmp_path


@pytest.fixture
def description(directory: Path) -> ApplicationDescription:
    return describe(directory)


@pytest.fixture
def chain(description: ApplicationDescription) -> Iterator[OwnChain]:
    chain = OwnChain(ownership(description))
    yield chain
    chain.close()


def steps(directory: Path, chain: str = "chain-0001") -> list[int]:
    """The steps of all checkpoints."""
    return sorted(int(path.name.split("-")[1]) for path in (directory / chain / "checkpoints").glob("save-*"))


def newest(chain: OwnChain, generation: int) -> StoredCheckpoint | None:
    chosen = chain.choose(generation)
    return chosen.checkpoint if chosen else None


def leave(directory: Path) -> Path:
    """An object of an upload that was never committed."""
    path = directory / "chain-0001" / "objects" / "000099-0-0badcafe-0"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half of it")
    return path


def test_fresh_chain_has_nothing_to_go_on_from(chain: OwnChain) -> None:
    assert newest(chain, 1) is None


def test_first_generation_clears_leftovers_away_and_later_ones_those_of_earlier_ones(
    directory: Path, chain: OwnChain
) -> None:
    committed = commit(directory / "chain-0001", 10)
    left = leave(directory)
    found = newest(chain, 1)
    assert found
    assert found.uri == committed.uri
    assert not left.exists()
    under_way = leave(directory)
    assert newest(chain, 1) == found, "a task that starts again alone disturbs nobody"
    assert under_way.exists()
    assert newest(chain, 2) == found
    assert not under_way.exists()
    assert steps(directory) == [10]


def test_uploads_of_a_generation_that_a_later_master_finds_running_stay(directory: Path, chain: OwnChain) -> None:
    chain.swept = 3
    under_way = leave(directory)
    newest(chain, 3)
    assert under_way.exists()
    newest(chain, 4)
    assert not under_way.exists()


def test_own_checkpoints_come_before_those_of_the_chain_that_it_continues(directory: Path) -> None:
    former = commit(directory / "chain-0000", 100)
    chain = OwnChain(ownership(describe(directory, continues=(directory / "chain-0000").as_uri())))
    found = newest(chain, 1)
    assert found
    assert found.uri == former.uri
    own_one = commit(directory / "chain-0001", 40)
    found = newest(chain, 2)
    assert found
    assert found.uri == own_one.uri
    chain.close()


def test_damaged_checkpoint_of_a_former_chain_is_passed_over_and_stays(directory: Path) -> None:
    commit(directory / "chain-0000", 90)
    damaged = commit(directory / "chain-0000", 100)
    chain = OwnChain(ownership(describe(directory, continues=(directory / "chain-0000").as_uri())))
    chain.set_aside(damaged.uri, "other bytes than it should have")
    found = newest(chain, 1)
    assert found
    assert found.step == 90
    assert steps(directory, "chain-0000") == [90, 100]
    chain.close()


async def test_the_owner_of_a_former_chain_keeps_the_checkpoint_that_is_in_use(directory: Path) -> None:
    owner = Catalog(LocalStorage(), (directory / "chain-0000").as_uri())
    used = commit(directory / "chain-0000", 90)
    chain = OwnChain(ownership(describe(directory, continues=owner.chain_uri)))
    found = newest(chain, 1)
    assert found
    for step in (100, 110, 120):
        commit(directory / "chain-0000", step)
        owner.prune(1)
    assert checkpoints.content(LocalStorage(), found.uri) == files_of(90)
    chain.set_aside(used.uri, "other bytes than it should have")
    found = newest(chain, 2)
    assert found
    assert found.step == 120, "another one is in use now"
    commit(directory / "chain-0000", 130)
    owner.prune(1)
    assert steps(directory, "chain-0000") == [120, 130]
    await chain.conclude(None)
    owner.prune(1)
    assert steps(directory, "chain-0000") == [130]
    chain.close()


def test_the_former_chain_is_left_alone_once_there_are_own_checkpoints(directory: Path) -> None:
    owner = Catalog(LocalStorage(), (directory / "chain-0000").as_uri())
    commit(directory / "chain-0000", 90)
    chain = OwnChain(ownership(describe(directory, continues=owner.chain_uri)))
    newest(chain, 1)
    commit(directory / "chain-0001", 95)
    newest(chain, 2)
    commit(directory / "chain-0000", 100)
    owner.prune(1)
    assert steps(directory, "chain-0000") == [100]
    chain.close()


class Removing(LocalStorage):
    """Removes each checkpoint of a chain in the moment in which a reader wants to pin it, for a while."""

    def __init__(self, owner: Catalog) -> None:
        super().__init__()
        self._owner = owner
        self._steps = [110, 100]

    def write(self, uri: str, source: Any, **more: Any) -> int:
        if "/pins/" in uri and self._steps:
            commit(local_path(self._owner.chain_uri), self._steps.pop())
            self._owner.prune(1)
        return super().write(uri, source, **more)


def test_another_checkpoint_of_a_former_chain_is_chosen_if_the_first_is_just_being_removed(directory: Path) -> None:
    owner = Catalog(LocalStorage(), (directory / "chain-0000").as_uri())
    commit(directory / "chain-0000", 90)
    description = describe(directory, continues=owner.chain_uri)
    chain = OwnChain(ownership(description, storage=Removing(owner)))
    found = newest(chain, 1)
    assert found
    assert found.step == 110
    chain.close()


def test_a_job_does_not_begin_at_step_0_if_the_chain_that_it_resumes_from_has_lost_its_checkpoint(
    directory: Path,
) -> None:
    owner = Catalog(LocalStorage(), (directory / "chain-0000").as_uri())
    named = commit(directory / "chain-0000", 90)
    commit(directory / "chain-0000", 100)
    owner.prune(1)
    chain = OwnChain(ownership(describe(directory, continues=named.uri)))
    with pytest.raises(
        NoCheckpointLeft, match=r"no intact checkpoint is left at .*/save-000090-.*raise checkpoint\.keep"
    ):
        chain.choose(1)
    own_one = commit(directory / "chain-0001", 40)
    assert newest(chain, 2) == own_one
    chain.close()


def test_own_damaged_checkpoint_is_set_aside(directory: Path, chain: OwnChain) -> None:
    commit(directory / "chain-0001", 90)
    damaged = commit(directory / "chain-0001", 100)
    chain.set_aside(damaged.uri, "other bytes than it should have")
    found = newest(chain, 1)
    assert found
    assert found.step == 90
    assert (directory / "chain-0001" / "broken" / uris.name(damaged.uri) / "manifest.json").exists()


@pytest.mark.parametrize(
    ("after_success", "left"),
    [
        (AfterSuccess.KEEP_LAST, [20]),
        (AfterSuccess.KEEP_ALL, [10, 20]),
        (AfterSuccess.REMOVE, []),
        (None, [10, 20]),
    ],
)
async def test_what_stays_at_the_end(
    directory: Path, chain: OwnChain, after_success: AfterSuccess | None, left: list[int]
) -> None:
    for step in (10, 20):
        commit(directory / "chain-0001", step)
    unfinished = leave(directory)
    await chain.conclude(after_success)
    assert steps(directory) == left
    assert not unfinished.exists()
    assert len(list(unfinished.parent.iterdir())) == len(left)


async def test_fenced_application_touches_nothing(directory: Path, chain: OwnChain) -> None:
    left = leave(directory)
    own(directory, OTHER)
    with pytest.raises(FencedError):
        await chain.do(lambda: newest(chain, 1))
    await chain.conclude(AfterSuccess.REMOVE)
    assert left.exists()


async def test_superseded_master_touches_nothing(
    directory: Path, description: ApplicationDescription, chain: OwnChain
) -> None:
    left = leave(directory)
    ownership(description, attempt=2).announce(Address("there", 1))
    with pytest.raises(SupersededError):
        await chain.conclude(AfterSuccess.REMOVE)
    assert left.exists()


async def test_one_piece_of_work_after_the_other_also_when_nobody_waits_any_more(chain: OwnChain) -> None:
    go, done = threading.Event(), []

    def slow() -> None:
        assert go.wait(DEADLINE)
        done.append("slow")

    first = asyncio.ensure_future(chain.do(slow))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.ensure_future(chain.do(lambda: done.append("next")))
    go.set()
    await asyncio.wait_for(second, DEADLINE)
    assert done == ["slow", "next"]


async def test_job_without_a_chain(directory: Path) -> None:
    chain = OwnChain(ownership(describe(directory, chain_dir="")))
    assert await chain.do(lambda: newest(chain, 1)) is None
    await chain.conclude(AfterSuccess.REMOVE)
    chain.close()


async def test_half_written_event_files_go_with_the_end(directory: Path, chain: OwnChain) -> None:
    files = [directory / "chain-0001" / name for name in ("tensorboard/worker-0/.tony-tmp-1", "user/.tony-tmp-2")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    await chain.conclude(None)
    assert [file.exists() for file in files] == [False, True]

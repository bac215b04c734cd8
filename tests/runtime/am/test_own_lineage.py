"""The lineage that an application trains on: what it goes on from, what is cleared away, what stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.am.lineages import APPLICATION_ID, OTHER, commit, describe, own, ownership, upload
from tony_provider.runtime.address import Address
from tony_provider.runtime.am.own_lineage import OwnLineage
from tony_provider.runtime.am.owner import FencedError, SupersededError
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.spec.model import AfterSuccess

DEADLINE = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    own(tmp_path, APPLICATION_ID)
    return tmp_path


@pytest.fixture
def description(directory: Path) -> ApplicationDescription:
    return describe(directory)


@pytest.fixture
def lineage(description: ApplicationDescription) -> Iterator[OwnLineage]:
    lineage = OwnLineage(ownership(description))
    yield lineage
    lineage.close()


def steps(directory: Path, lineage: str = "L0001") -> list[int]:
    """Of everything below checkpoints/, committed or not."""
    return sorted(int(path.name.split("-")[3]) for path in (directory / lineage / "checkpoints").glob("save-*"))


def test_fresh_lineage_has_nothing_to_go_on_from(lineage: OwnLineage) -> None:
    assert lineage.newest(1) is None


def test_first_generation_clears_leftovers_away_and_later_ones_those_of_earlier_ones(
    directory: Path, lineage: OwnLineage
) -> None:
    committed = commit(directory / "L0001", 10)
    upload(directory / "L0001", 20)
    found = lineage.newest(1)
    assert found
    assert found.uri == committed.uri
    assert steps(directory) == [10]
    under_way = upload(directory / "L0001", 30)
    assert lineage.newest(1) == found, "a task that starts again alone disturbs nobody"
    assert under_way.directory.exists()
    assert lineage.newest(2) == found
    assert steps(directory) == [10]


def test_uploads_of_a_generation_that_a_later_master_finds_running_stay(directory: Path, lineage: OwnLineage) -> None:
    lineage.swept = 3
    upload(directory / "L0001", 30)
    lineage.newest(3)
    assert steps(directory) == [30]
    lineage.newest(4)
    assert steps(directory) == []


def test_own_checkpoints_come_before_those_of_the_lineage_that_it_continues(directory: Path) -> None:
    former = commit(directory / "L0000", 100)
    lineage = OwnLineage(ownership(describe(directory, continues=(directory / "L0000").as_uri())))
    found = lineage.newest(1)
    assert found
    assert found.uri == former.uri
    own_one = commit(directory / "L0001", 40)
    found = lineage.newest(2)
    assert found
    assert found.uri == own_one.uri
    lineage.close()


def test_damaged_checkpoint_of_a_former_lineage_is_passed_over_and_stays(directory: Path) -> None:
    commit(directory / "L0000", 90)
    damaged = commit(directory / "L0000", 100)
    lineage = OwnLineage(ownership(describe(directory, continues=(directory / "L0000").as_uri())))
    lineage.set_aside(damaged.uri, "other bytes than it should have")
    found = lineage.newest(1)
    assert found
    assert found.step == 90
    assert steps(directory, "L0000") == [90, 100]
    lineage.close()


def test_own_damaged_checkpoint_is_set_aside(directory: Path, lineage: OwnLineage) -> None:
    commit(directory / "L0001", 90)
    damaged = commit(directory / "L0001", 100)
    lineage.set_aside(damaged.uri, "other bytes than it should have")
    found = lineage.newest(1)
    assert found
    assert found.step == 90
    assert (directory / "L0001" / "broken" / damaged.directory.name / "manifest.json").exists()


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
    directory: Path, lineage: OwnLineage, after_success: AfterSuccess | None, left: list[int]
) -> None:
    for step in (10, 20):
        commit(directory / "L0001", step)
    upload(directory / "L0001", 30)
    await lineage.conclude(after_success)
    assert steps(directory) == left


async def test_fenced_application_touches_nothing(directory: Path, lineage: OwnLineage) -> None:
    upload(directory / "L0001", 30)
    own(directory, OTHER)
    with pytest.raises(FencedError):
        await lineage.do(lambda: lineage.newest(1))
    await lineage.conclude(AfterSuccess.REMOVE)
    assert steps(directory) == [30]


async def test_superseded_master_touches_nothing(
    directory: Path, description: ApplicationDescription, lineage: OwnLineage
) -> None:
    upload(directory / "L0001", 30)
    ownership(description, attempt=2).announce(Address("there", 1))
    with pytest.raises(SupersededError):
        await lineage.conclude(AfterSuccess.REMOVE)
    assert steps(directory) == [30]


async def test_one_piece_of_work_after_the_other_also_when_nobody_waits_any_more(lineage: OwnLineage) -> None:
    go, done = threading.Event(), []

    def slow() -> None:
        assert go.wait(DEADLINE)
        done.append("slow")

    first = asyncio.ensure_future(lineage.do(slow))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.ensure_future(lineage.do(lambda: done.append("next")))
    go.set()
    await asyncio.wait_for(second, DEADLINE)
    assert done == ["slow", "next"]


async def test_job_without_a_lineage(directory: Path) -> None:
    lineage = OwnLineage(ownership(describe(directory, lineage_dir="")))
    assert await lineage.do(lambda: lineage.newest(1)) is None
    await lineage.conclude(AfterSuccess.REMOVE)
    lineage.close()


async def test_half_written_event_files_go_with_the_end(directory: Path, lineage: OwnLineage) -> None:
    files = [directory / "L0001" / name for name in ("tensorboard/worker-0/.tony-tmp-1", "user/.tony-tmp-2")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    await lineage.conclude(None)
    assert [file.exists() for file in files] == [False, True]

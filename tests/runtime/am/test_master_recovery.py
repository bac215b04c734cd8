"""What a later application master finds of the former ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.chains import APPLICATION_ID, OTHER, describe, own, ownership
from tony_provider.runtime.am.checkpoint_chain import SupersededError
from tony_provider.runtime.am.records import read_recovered_state, retry_until_reachable
from tony_provider.runtime.application_history import EventRange, encode_event, encode_events
from tony_provider.runtime.common import concurrency, contract
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage import LocalStorage, StorageNotFound, StorageUnreachable, read_bytes

RUNNING = JobStatus(APPLICATION_ID, "trial", JobState.RUNNING)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    own(tmp_path, APPLICATION_ID)
    directory = tmp_path / "applications" / APPLICATION_ID
    directory.mkdir(parents=True)
    return directory


def noted(application: Path, *events: dict[str, Any]) -> None:
    """A former application master has left these events."""
    file = application / contract.HISTORY_DIR / EventRange(1, 1, len(events)).file
    file.parent.mkdir()
    file.write_bytes(encode_events(APPLICATION_ID, map(encode_event, events)))


def ended(state: JobState) -> JobStatus:
    return attrs.evolve(RUNNING, state=state)


def test_first_master_inherits_nothing(tmp_path: Path, application: Path) -> None:
    noted(application, {"event": "application", "time_ms": 1})
    found = read_recovered_state(ownership(describe(tmp_path)))
    assert (found.previous, found.fenced) == (None, "")


def test_counters_come_from_the_event_log(tmp_path: Path, application: Path) -> None:
    noted(
        application,
        {"event": "application", "time_ms": 5000},
        {"event": "rendezvous", "data": {"generation": 4}, "time_ms": 6000},
    )
    (application / contract.STATUS_FILE).write_bytes(dump_json(RUNNING))
    previous = read_recovered_state(ownership(describe(tmp_path), attempt=2)).previous
    assert previous
    assert [each.range for each in previous.events] == [EventRange(1, 1, 2)]
    assert (previous.history.generation, previous.history.started) == (4, 5.0)
    assert previous.result is None


def test_former_master_that_left_nothing(tmp_path: Path) -> None:
    """It died before it could."""
    previous = read_recovered_state(ownership(describe(tmp_path), attempt=2)).previous
    assert previous
    assert (previous.events, previous.result, previous.history.generation) == ([], None, 0)


def test_result_of_a_job_that_had_ended_stands(tmp_path: Path, application: Path) -> None:
    for name in (contract.STATUS_FILE, contract.RESULT_FILE):
        (application / name).write_bytes(dump_json(ended(JobState.SUCCEEDED)))
    previous = read_recovered_state(ownership(describe(tmp_path), attempt=2)).previous
    assert previous
    assert previous.result == ended(JobState.SUCCEEDED)


@pytest.mark.parametrize("status", [dump_json(RUNNING), b"{", None])
def test_last_word_of_a_master_that_was_killed_is_taken_back(
    tmp_path: Path, application: Path, status: bytes | None
) -> None:
    (application / contract.RESULT_FILE).write_bytes(dump_json(ended(JobState.KILLED)))
    if status is not None:
        (application / contract.STATUS_FILE).write_bytes(status)
    previous = read_recovered_state(ownership(describe(tmp_path), attempt=2)).previous
    assert previous
    assert previous.result is None
    assert not (application / contract.RESULT_FILE).exists()


def test_fenced_before_it_began(tmp_path: Path) -> None:
    own(tmp_path, OTHER)
    assert f"application {OTHER} owns the training" in read_recovered_state(ownership(describe(tmp_path))).fenced


def test_older_master_that_comes_late_has_nothing_to_do(tmp_path: Path, application: Path) -> None:
    ownership(describe(tmp_path), attempt=2).announce(Address("there", 1))
    with pytest.raises(SupersededError):
        read_recovered_state(ownership(describe(tmp_path)))


async def test_store_that_cannot_be_reached_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "FIRST_PAUSE", 0.01)
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise StorageUnreachable("hdfs://n/", "read", "nobody answers")
        return "there"

    assert await asyncio.wait_for(retry_until_reachable(work), 30) == "there"
    assert len(tries) == 3


async def test_what_is_missing_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(StorageNotFound):
        await asyncio.wait_for(
            retry_until_reachable(lambda: read_bytes(LocalStorage(), (tmp_path / "none").as_uri())), 30
        )

"""Who may commit: one application, and the newest of its masters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.chains import APPLICATION_ID, KEY, OTHER, describe, own, ownership
from tony_provider.runtime import contract, master_address
from tony_provider.runtime.address import Address
from tony_provider.runtime.am.owner import FencedError, SupersededError
from tony_provider.runtime.checkpoint_chain import Owner
from tony_provider.runtime.codec import load_json
from tony_provider.runtime.storage import LocalStorage, StorageExists, StorageUnreachable
from tony_provider.runtime.storage.base import Source

HERE = Address("here", 20001)


def test_chain_of_ours_stays_as_the_airflow_side_wrote_it(tmp_path: Path) -> None:
    file = own(tmp_path, APPLICATION_ID)
    before = file.read_bytes()
    ownership(describe(tmp_path), attempt=2).check()
    assert file.read_bytes() == before


def test_another_application_fences_this_one(tmp_path: Path) -> None:
    file = own(tmp_path, OTHER)
    with pytest.raises(FencedError, match=f"application {OTHER} owns the checkpoint chain chain-0001 now"):
        ownership(describe(tmp_path)).check()
    assert load_json(file.read_bytes(), Owner).application_id == OTHER


def test_chain_that_nobody_owns_is_taken(tmp_path: Path) -> None:
    ownership(describe(tmp_path)).check()
    owner = load_json((tmp_path / "chain-0001" / contract.OWNER_FILE).read_bytes(), Owner)
    assert owner == Owner(APPLICATION_ID)
    with pytest.raises(FencedError):
        ownership(describe(tmp_path, application_id=OTHER)).check()


def test_somebody_else_who_takes_it_in_the_same_moment_wins(tmp_path: Path) -> None:
    class Overtaken(LocalStorage):
        def write(self, uri: str, source: Source, **more: Any) -> int:
            own(tmp_path, OTHER)
            raise StorageExists(uri, "write", "it exists")

    with pytest.raises(FencedError, match=OTHER):
        ownership(describe(tmp_path), storage=Overtaken()).check()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"application_id": 5}'])
def test_nothing_is_risked_when_the_owner_cannot_be_told(tmp_path: Path, content: bytes) -> None:
    own(tmp_path, APPLICATION_ID).write_bytes(content)
    with pytest.raises(FencedError, match="who owns the checkpoint chain cannot be told from"):
        ownership(describe(tmp_path)).check()


def test_newer_master_supersedes_this_one(tmp_path: Path) -> None:
    own(tmp_path, APPLICATION_ID)
    first, second = (ownership(describe(tmp_path), attempt=number) for number in (1, 2))
    first.announce(HERE)
    first.check()
    second.announce(Address("there", 20002))
    second.check()
    for late in (first.check, first.check_newest, lambda: first.announce(HERE)):
        with pytest.raises(SupersededError, match="application master 2 has taken over, at there:20002"):
            late()
    assert master_address.load(LocalStorage(), describe(tmp_path).application_dir, KEY) == (
        master_address.MasterAddress(Address("there", 20002), 2)
    )


def test_address_that_no_master_signed_supersedes_nobody(tmp_path: Path) -> None:
    description = describe(tmp_path)
    ownership(description, attempt=9, key=b"another").announce(HERE)
    ownership(description).check_newest()


def test_without_a_chain_only_newer_masters_count(tmp_path: Path) -> None:
    description = attrs.evolve(describe(tmp_path), chain_dir="")
    ownership(description).check()
    assert list(tmp_path.iterdir()) == []


def test_store_that_does_not_answer_is_no_permission(tmp_path: Path) -> None:
    class Unreachable(LocalStorage):
        def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> object:  # type: ignore[override]
            raise StorageUnreachable(uri, "read", "nobody answers")

    with pytest.raises(StorageUnreachable):
        ownership(describe(tmp_path), storage=Unreachable()).check()

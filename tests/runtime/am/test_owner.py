"""Who may commit: one application, and the newest of its masters."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.runtime.am.chains import APPLICATION_ID, KEY, OTHER, describe, own, ownership
from tony_provider.runtime.am.checkpoint_chain import FencedError, SupersededError
from tony_provider.runtime.checkpoint.stored_checkpoint import Stop
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable

HERE = Address("here", 20001)


def test_an_application_owns_the_training_until_another_one_does(tmp_path: Path) -> None:
    mine = ownership(describe(tmp_path), attempt=2)
    mine.check()
    own(tmp_path, APPLICATION_ID)  # a retry has found it
    mine.check()
    own(tmp_path, OTHER)
    own(tmp_path, "")
    own(tmp_path, OTHER)
    with pytest.raises(FencedError, match=f"application {OTHER} owns the training {tmp_path.name} now"):
        mine.check()


def test_an_owner_without_application_fences_nobody(tmp_path: Path) -> None:
    """A try has begun, after the training's owners were removed by hand."""
    own(tmp_path, "")
    ownership(describe(tmp_path)).check()


def test_a_failed_submission_gives_the_training_back(tmp_path: Path) -> None:
    mine = ownership(describe(tmp_path))
    own(tmp_path, OTHER)
    own(tmp_path, APPLICATION_ID)
    mine.check()


def test_an_order_to_stop_is_found(tmp_path: Path) -> None:
    mine = ownership(describe(tmp_path))
    mine.check()
    assert mine.stop is None
    own(tmp_path, APPLICATION_ID, stop=Stop("marked as failed"))
    mine.check()
    assert mine.stop == Stop("marked as failed")
    own(tmp_path, OTHER, stop=Stop("of another application"))
    with pytest.raises(FencedError):
        mine.check()
    assert mine.stop is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"application_id": 5}'])
def test_nothing_is_risked_when_the_owner_cannot_be_told(tmp_path: Path, content: bytes) -> None:
    own(tmp_path, APPLICATION_ID).write_bytes(content)
    with pytest.raises(FencedError, match="the owner of the training cannot be read from"):
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
    assert master_files.load_master_address(LocalStorage(), describe(tmp_path).application_dir, KEY) == (
        master_files.MasterAddress(Address("there", 20002), 2)
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

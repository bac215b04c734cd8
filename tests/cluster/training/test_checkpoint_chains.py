"""Chains on a real store of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints import commit
from tests.owners import open_after, own
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.training.checkpoint_chains import ChainState, CheckpointChains, choose_checkpoint, new_chain
from tony_provider.cluster.training.identity import Identity, Layout, chain_number
from tony_provider.cluster.training.plan import Resume, choose_chain
from tony_provider.cluster.training.results import Delivered
from tony_provider.runtime.checkpoint.stored_checkpoint import ChainRecord, Epoch, Owner, WaitingTry
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.runtime.storage.errors import StorageExists
from tony_provider.runtime.storage.local import LocalStorage

A, B = "application_1_0001", "application_1_0002"


@pytest.fixture
def chains(tmp_path: Path) -> CheckpointChains:
    return CheckpointChains(LocalStorage(), Layout(f"file://{tmp_path}"), Identity("train", "0"))


def test_the_first_and_the_next(chains: CheckpointChains) -> None:
    assert chains.newest() is None
    first = open_after(chains, None, new_chain())
    assert first.endswith("/jobs/train-0/chain-0001")
    newest = chains.newest()
    assert newest is not None
    assert (newest.uri, newest.owner) == (first, None)
    second = open_after(chains, newest, new_chain())
    newest = chains.newest()
    assert newest is not None
    assert (newest.uri, newest.name) == (second, "chain-0002")


def test_one_of_many_opens_a_chain(chains: CheckpointChains) -> None:
    def open_first(_: int) -> str | None:
        try:
            return open_after(chains, None, new_chain())
        except StorageExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(open_first, range(8)))
    assert sum(uri is not None for uri in opened) == 1


def test_who_owns_it(chains: CheckpointChains) -> None:
    uri = open_after(chains, None, new_chain())
    own(chains, uri, A)
    own(chains, uri, B)
    assert chains.owned_by(A) is None
    found = chains.owned_by(B)
    assert found is not None
    assert (found.uri, found.owner) == (uri, Owner(B, "chain-0001"))
    second = open_after(chains, chains.newest(), new_chain())
    assert chains.read(second).owner is None, "a newer one is nobody's yet"
    own(chains, second, A)
    assert chains.owned_by(B) is None
    assert chains.read(uri).owner == Owner(B, "chain-0001"), "of the older chain, the last one"


def test_a_chain_whose_opening_was_cut_short_is_opened(chains: CheckpointChains) -> None:
    """Its directory is there a moment before it says what it is."""
    chains.storage.make_directories(chains.layout.chain_dir(chains.identity, 1))
    newest = chains.newest()
    uri = open_after(chains, newest, new_chain())
    assert uri.endswith("/chain-0001")
    with pytest.raises(StorageExists):
        open_after(chains, newest, new_chain())


def test_what_was_owned_in_vain_is_as_it_was(chains: CheckpointChains) -> None:
    first = open_after(chains, None, new_chain())
    former = own(chains, first, A)
    second = open_after(chains, chains.newest(), new_chain())
    chains.owners.give_back(own(chains, second, B, WaitingTry("try 2")), former)
    assert chains.owners.newest().owner == Owner(A, "chain-0001", WaitingTry("try 2"))
    assert chains.owned_by(A) == chains.read(first)


def test_a_first_submission_that_failed_leaves_nothing(chains: CheckpointChains) -> None:
    uri = open_after(chains, None, new_chain())
    chains.owners.give_back(own(chains, uri, A), Epoch())
    chains.abandon(uri)
    assert chains.storage.list(chains.layout.job_dir(chains.identity)) == []


def test_what_somebody_else_owns_by_now_or_has_saved_stays(chains: CheckpointChains) -> None:
    uri = open_after(chains, None, new_chain())
    taken = own(chains, uri, A)
    own(chains, uri, B)
    chains.owners.give_back(taken, Epoch())
    chains.abandon(uri)
    assert chains.owners.newest().owner.application_id == B
    assert chains.read(uri).about is not None
    commit(chains.storage, uri, 5)
    chains.abandon(uri)
    assert _newest_step(chains, uri) == 5


def _newest_step(chains: CheckpointChains, uri: str) -> int | None:
    newest = choose_checkpoint(chains.storage, uri)
    return newest.checkpoint.step if newest else None


def test_the_newest_step_is_that_of_a_whole_committed_checkpoint(chains: CheckpointChains) -> None:
    uri = open_after(chains, None, new_chain())
    assert choose_checkpoint(chains.storage, uri) is None
    commit(chains.storage, uri, 90)
    commit(chains.storage, uri, 100)
    cut = commit(chains.storage, uri, 110)
    [name] = cut.manifest.objects
    chains.storage.write(f"{uri}/objects/{name}", b"w", overwrite=True)
    chains.storage.make_directories(f"{uri}/checkpoints/save-000120-0000aaaa")
    assert _newest_step(chains, uri) == 100
    assert chains.storage.exists(cut.uri), "a look changes nothing"


@pytest.mark.parametrize(
    ("file", "advice"),
    [("chain-0001/chain.json", "restarts from the beginning"), ("owners/00000001.json", "the previous owner")],
)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"version": "two"}'])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(
    chains: CheckpointChains, file: str, advice: str, content: bytes
) -> None:
    own(chains, open_after(chains, None, new_chain()), A)
    training = chains.layout.job_dir(chains.identity)
    write_atomically(chains.storage, f"{training}/{file}", content)
    with pytest.raises(
        RecordUnreadable, match=f"cannot read {training}/{file}: not (JSON: |a valid ).* remove the file: .*{advice}"
    ):
        chains.newest()
    chains.storage.remove(f"{training}/{file}")
    assert chains.newest() is not None


@given(st.integers(min_value=1, max_value=10**6))
def test_a_directory_says_its_number(number: int) -> None:
    uri = Layout("hdfs://nn/tony").chain_dir(Identity("train", "0"), number)
    assert chain_number(uri.rsplit("/", 1)[1]) == number


@pytest.mark.parametrize("name", ["applications", "L1", "L0001x", "l0001", ""])
def test_other_directories_have_none(name: str) -> None:
    assert chain_number(name) is None


FIRST = ChainState("file:///jobs/x/chain-0001", ChainRecord({"env.A": "1", "framework": "tf"}), None)
SAME, OTHER = {"env.A": "1", "framework": "tf"}, {"env.A": "2", "framework": "tf", "env.B": "1"}


@pytest.mark.parametrize(
    ("resume", "newest", "fingerprint", "has_succeeded", "goes_on", "words"),
    [
        ("auto", None, SAME, False, False, "has not run before"),
        ("auto", FIRST, SAME, False, True, "did not succeed"),
        ("auto", FIRST, OTHER, False, False, "env.A, env.B changed"),
        ("auto", FIRST, SAME, True, False, "chain-0001 has already led to a success"),
        ("always", None, SAME, False, False, "has not run before"),
        ("always", FIRST, SAME, False, True, "'always'"),
        ("always", FIRST, OTHER, False, True, "though env.A, env.B changed"),
        ("always", FIRST, SAME, True, True, "'always'"),
        ("never", FIRST, SAME, False, False, "'never'"),
        ("auto", ChainState(FIRST.uri, None, None), SAME, False, False, "never started"),
    ],
)
def test_when_a_chain_is_gone_on_in(
    resume: str,
    newest: ChainState | None,
    fingerprint: Mapping[str, str],
    has_succeeded: bool,
    goes_on: bool,
    words: str,
) -> None:
    choice = choose_chain(Resume(resume), newest, fingerprint, has_succeeded=has_succeeded)
    assert choice.goes_on is goes_on
    assert words in choice.why


def test_many_keys_are_not_all_named() -> None:
    choice = choose_chain(Resume.AUTO, FIRST, {f"env.{number:02}": "1" for number in range(20)}, has_succeeded=False)
    assert "because env.00, env.01, env.02, env.03, env.04, env.05 and 16 more changed" in choice.why


@pytest.mark.parametrize(
    ("try_number", "max_tries", "reached"),
    [
        (2, 3, False),  # a mere retry: Airflow has not had the result
        (2, 4, True),  # cleared
        (1, 3, True),  # the run was deleted and made anew
        (3, 3, False),
        (2, 2, True),
    ],
)
def test_which_later_try_says_that_airflow_had_the_result(try_number: int, max_tries: int, reached: bool) -> None:
    assert Delivered(try_number=1, max_tries=3).reached_airflow(try_number, max_tries) is reached

"""Lineages on a real store of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints import commit
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout, lineage_number
from tony_provider.cluster.lineage import Lineages, LineageState, new_lineage, newest_checkpoint
from tony_provider.cluster.lineage_choice import Resume, choose
from tony_provider.cluster.results import Delivered
from tony_provider.runtime.lineage import Lineage, Owner
from tony_provider.runtime.storage.errors import StorageExists
from tony_provider.runtime.storage.helpers import write_atomically
from tony_provider.runtime.storage.local import LocalStorage

A, B = "application_1_0001", "application_1_0002"


@pytest.fixture
def lineages(tmp_path: Path) -> Lineages:
    return Lineages(LocalStorage(), Layout(f"file://{tmp_path}"), Identity("train", "0"))


def test_the_first_and_the_next(lineages: Lineages) -> None:
    assert lineages.newest() is None
    first = lineages.open_after(None, new_lineage())
    assert first.endswith("/jobs/train-0/L0001")
    newest = lineages.newest()
    assert newest is not None
    assert (newest.uri, newest.owner) == (first, None)
    second = lineages.open_after(newest, new_lineage())
    newest = lineages.newest()
    assert newest is not None
    assert (newest.uri, newest.name) == (second, "L0002")


def test_one_of_many_opens_a_lineage(lineages: Lineages) -> None:
    def open_first(_: int) -> str | None:
        try:
            return lineages.open_after(None, new_lineage())
        except StorageExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(open_first, range(8)))
    assert sum(uri is not None for uri in opened) == 1


def test_who_owns_it(lineages: Lineages) -> None:
    uri = lineages.open_after(None, new_lineage())
    lineages.own(uri, A)
    assert lineages.is_owned(uri, A)
    lineages.own(uri, B)
    assert not lineages.is_owned(uri, A)
    assert lineages.owned_by(A) is None
    found = lineages.owned_by(B)
    assert found is not None
    assert (found.uri, found.owner) == (uri, Owner(B))


def test_whoever_owns_the_newest_lineage_fences_the_older_ones(lineages: Lineages) -> None:
    first = lineages.open_after(None, new_lineage())
    lineages.own(first, A)
    second = lineages.open_after(lineages.newest(), new_lineage())
    lineages.own(second, B)
    assert lineages.is_owned(second, B)
    assert not lineages.is_owned(first, A)
    found = lineages.owned_by(B)
    assert found is not None
    assert found.uri == second
    third = lineages.open_after(lineages.newest(), new_lineage())
    lineages.own(second, A)
    assert lineages.read(third).owner is None, "a newer one is nobody's yet"


def test_a_lineage_whose_opening_was_cut_short_is_opened(lineages: Lineages) -> None:
    """Its directory is there a moment before it says what it is."""
    lineages.storage.make_directories(lineages.layout.lineage_dir(lineages.identity, 1))
    newest = lineages.newest()
    uri = lineages.open_after(newest, new_lineage())
    assert uri.endswith("/L0001")
    with pytest.raises(StorageExists):
        lineages.open_after(newest, new_lineage())


def test_what_was_owned_in_vain_is_as_it_was(lineages: Lineages) -> None:
    first = lineages.open_after(None, new_lineage())
    lineages.own(first, A)
    second = lineages.open_after(lineages.newest(), new_lineage())
    former = lineages.own(second, B)
    lineages.disown(former, B)
    lineages.abandon(second)
    newest = lineages.newest()
    assert newest is not None
    assert (newest.uri, newest.owner) == (first, Owner(A))


def test_what_somebody_else_owns_by_now_or_has_saved_stays(lineages: Lineages) -> None:
    uri = lineages.open_after(None, new_lineage())
    former = lineages.own(uri, A)
    lineages.own(uri, B)
    lineages.disown(former, A)
    lineages.abandon(uri)
    assert lineages.is_owned(uri, B)
    assert lineages.read(uri).about is not None
    commit(lineages.storage, uri, 5)
    lineages.disown({uri: None}, B)
    lineages.abandon(uri)
    assert _newest_step(lineages, uri) == 5


def _newest_step(lineages: Lineages, uri: str) -> int | None:
    newest = newest_checkpoint(lineages.storage, uri)
    return newest.step if newest else None


def test_the_newest_step_is_that_of_a_whole_committed_checkpoint(lineages: Lineages) -> None:
    uri = lineages.open_after(None, new_lineage())
    assert newest_checkpoint(lineages.storage, uri) is None
    commit(lineages.storage, uri, 90)
    commit(lineages.storage, uri, 100)
    cut = commit(lineages.storage, uri, 110)
    lineages.storage.write(f"{cut.uri}/rank-0/model.bin", b"w", overwrite=True)
    lineages.storage.make_directories(f"{uri}/checkpoints/save-000120-step-120-0000aaaa/rank-0")
    assert _newest_step(lineages, uri) == 100
    assert lineages.storage.exists(cut.uri), "a look changes nothing"


@pytest.mark.parametrize(("file", "advice"), [("lineage.json", "begins anew"), ("owner.json", "takes it over")])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"version": "two"}'])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(
    lineages: Lineages, file: str, advice: str, content: bytes
) -> None:
    uri = lineages.open_after(None, new_lineage())
    lineages.own(uri, A)
    write_atomically(lineages.storage, f"{uri}/{file}", content)
    with pytest.raises(RecordUnreadable, match=f"cannot read {uri}/{file}: not a valid .* remove the file, .*{advice}"):
        lineages.newest()
    lineages.storage.remove(f"{uri}/{file}")
    assert lineages.newest() is not None


def test_an_owner_that_cannot_be_read_keeps_all_from_being_owned(lineages: Lineages) -> None:
    first = lineages.open_after(None, new_lineage())
    second = lineages.open_after(lineages.newest(), new_lineage())
    lineages.own(second, A)
    write_atomically(lineages.storage, f"{first}/owner.json", b"changed by hand")
    with pytest.raises(RecordUnreadable, match=r"L0001/owner\.json"):
        lineages.own(second, B)
    assert lineages.is_owned(second, A)


@given(st.integers(min_value=1, max_value=10**6))
def test_a_directory_says_its_number(number: int) -> None:
    uri = Layout("hdfs://nn/tony").lineage_dir(Identity("train", "0"), number)
    assert lineage_number(uri.rsplit("/", 1)[1]) == number


@pytest.mark.parametrize("name", ["applications", "L1", "L0001x", "l0001", ""])
def test_other_directories_have_none(name: str) -> None:
    assert lineage_number(name) is None


FIRST = LineageState("file:///jobs/x/L0001", Lineage({"env.A": "1", "framework": "tf"}), None)
SAME, OTHER = {"env.A": "1", "framework": "tf"}, {"env.A": "2", "framework": "tf", "env.B": "1"}


@pytest.mark.parametrize(
    ("resume", "newest", "fingerprint", "has_succeeded", "goes_on", "words"),
    [
        ("auto", None, SAME, False, False, "has not run before"),
        ("auto", FIRST, SAME, False, True, "did not succeed"),
        ("auto", FIRST, OTHER, False, False, "env.A, env.B changed"),
        ("auto", FIRST, SAME, True, False, "L0001 has led to a success"),
        ("always", None, SAME, False, False, "has not run before"),
        ("always", FIRST, SAME, False, True, "'always'"),
        ("always", FIRST, OTHER, False, True, "though env.A, env.B changed"),
        ("always", FIRST, SAME, True, True, "'always'"),
        ("never", FIRST, SAME, False, False, "'never'"),
        ("auto", LineageState(FIRST.uri, None, None), SAME, False, False, "never begun"),
    ],
)
def test_when_a_lineage_is_gone_on_in(
    resume: str,
    newest: LineageState | None,
    fingerprint: Mapping[str, str],
    has_succeeded: bool,
    goes_on: bool,
    words: str,
) -> None:
    choice = choose(Resume(resume), newest, fingerprint, has_succeeded=has_succeeded)
    assert choice.goes_on is goes_on
    assert words in choice.why


def test_many_keys_are_not_all_named() -> None:
    choice = choose(Resume.AUTO, FIRST, {f"env.{number:02}": "1" for number in range(20)}, has_succeeded=False)
    assert "since env.00, env.01, env.02, env.03, env.04, env.05 and 16 more changed" in choice.why


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

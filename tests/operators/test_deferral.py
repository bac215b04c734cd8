"""What a try notes before it is deferred, and what later tries make of it; a stand-in for the cluster."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any, cast
from unittest import mock

import pytest

from tests.operators.statuses import application
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.results import ApplicationRef
from tony_provider.operators import try_state
from tony_provider.operators.try_state import BeginningTry, DeferralNote, StateStore, TaskInstanceInfo, TryInfo

LOG = cast(Any, logging.getLogger(__name__))
ID = "application_1700000000000_0001"
LEFT = DeferralNote(try_id="id-1", max_tries=1, application_id=ID, kill=True)
CLEARED = TryInfo(2, 2, "id-2")
RUN = TaskInstanceInfo("clicks", "today", "train", map_index=3, try_number=2)
MINE, OTHER = Identity("mine", "0" * 20), Identity("other", "1" * 20)


class Kept(dict[str, Any]):
    """Stands for Airflow's store."""

    def set(self, key: str, value: Any, *, retention: timedelta | None) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Identity, str]]:
    found: list[tuple[Identity, str]] = []
    monkeypatch.setattr(try_state, "end_job", lambda job, _: found.append((job.identity, job.application_id)))
    return found


def task(found: Any, labels: Any = None, this_try: TryInfo = CLEARED) -> BeginningTry:
    """``found``: the training of the application that the cluster and the store know, or an error of theirs."""
    ref = ApplicationRef(ID, application("RUNNING"), found)
    hook = mock.Mock(identity=lambda **_: MINE)
    hook.job = lambda application_id, identity: mock.Mock(
        application_id=application_id, identity=identity, labels=lambda: labels or {}
    )
    hook.application_ref.side_effect = found if isinstance(found, Exception) else lambda **_: ref
    return BeginningTry(hook, RUN, this_try, None)


def end(kept: Kept, left_by: BeginningTry) -> None:
    try_state.end_abandoned_application(StateStore(cast(Any, {"task_state_store": kept}), LOG), left_by, LOG)


def noted(left: DeferralNote = LEFT) -> Kept:
    kept = Kept()
    try_state.write_deferral_note(StateStore(cast(Any, {"task_state_store": kept}), LOG), left)
    return kept


@pytest.mark.parametrize(
    ("number", "max_tries", "cut_short"),
    [
        (1, 1, False),  # itself
        (2, 1, False),  # a retry: its process died as it was about to be deferred
        (2, 2, True),
        (3, 2, True),  # of a try that died while it ended what was left
    ],
)
def test_only_clearing_cuts_a_deferral_short(number: int, max_tries: int, cut_short: bool) -> None:
    assert LEFT.was_cut_short(TryInfo(number, max_tries, f"id-{number}")) is cut_short


@pytest.mark.parametrize(
    ("labels", "is_ended"),
    [
        ({"dag_id": "clicks", "run_id": "today", "task_id": "train", "map_index": "3", "try_number": "1"}, True),
        ({"dag_id": "payroll", "run_id": "today", "task_id": "train", "map_index": "3"}, False),
        ({"dag_id": "clicks", "run_id": "yesterday", "task_id": "train", "map_index": "3"}, False),
        ({"dag_id": "clicks", "run_id": "today", "task_id": "train", "map_index": "4"}, False),
        ({"dag_id": "clicks", "run_id": "today", "task_id": "train"}, False),
        ({}, False),
    ],
)
def test_a_note_ends_nothing_that_its_task_has_not_started(
    ended: list[tuple[Identity, str]], caplog: pytest.LogCaptureFixture, labels: dict[str, str], is_ended: bool
) -> None:
    """Whoever may clear a task can write its note. A task whose checkpoint_key was changed was another training."""
    kept = noted()
    end(kept, task(OTHER, labels))
    assert ended == ([(OTHER, ID)] if is_ended else [])
    assert ("this task did not start it" in caplog.text) is not is_ended
    assert not kept


def test_a_note_ends_its_own_trainings_application(ended: list[tuple[Identity, str]]) -> None:
    end(noted(), task(MINE))
    assert ended == [(MINE, ID)]


def test_what_nobody_knows_to_be_a_trainings_goes_on(ended: list[tuple[Identity, str]]) -> None:
    end(noted(), task(None))
    assert ended == []


@pytest.mark.parametrize("name", ["../../x", "application_1_1/../application_2_2", "application_1_1?x", "", "\x1b[2J"])
def test_a_note_that_names_no_application_is_told_and_asks_nobody(caplog: pytest.LogCaptureFixture, name: str) -> None:
    left_by = task(MINE)
    end(Kept(tony_deferral={"try_id": "id-1", "max_tries": 1, "application_id": name, "kill": True}), left_by)
    left_by.hook.application_ref.assert_not_called()  # type: ignore[attr-defined]
    assert "has an invalid application ID" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize(
    ("error", "left", "this_try", "stays", "said"),
    [
        (ClusterUnreachable("away"), LEFT, CLEARED, True, "_0001 of an earlier try could not be ended, .*: away"),
        (KeyError("state"), LEFT, CLEARED, True, "_0001 of an earlier try could not be ended, .*(?s:.*)Traceback"),
        (KeyError("state"), LEFT, TryInfo(2, 1, "id-2"), False, ""),
        (KeyError("state"), DeferralNote("id-1", 1, ID, kill=False), CLEARED, False, ""),
    ],
)
def test_what_cannot_be_ended_is_told_and_kept(
    caplog: pytest.LogCaptureFixture, error: Exception, left: DeferralNote, this_try: TryInfo, stays: bool, said: str
) -> None:
    kept = noted(left)
    end(kept, task(error, this_try=this_try))
    assert bool(kept) is stays
    assert re.search(said, caplog.text) if said else not caplog.records


def test_what_interrupts_the_task_is_not_taken_for_a_bad_answer(ended: list[tuple[Identity, str]]) -> None:
    left_by = task(MINE)
    left_by.hook.application_ref.side_effect = KeyboardInterrupt  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        end(noted(), left_by)


def test_a_note_of_another_release_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    end(Kept(tony_deferral={"try": 3}), task(MINE))
    assert "while it was deferred: not a valid Deferral" in caplog.text

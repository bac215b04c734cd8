"""What a try notes before it is deferred, and what later tries make of it."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any, cast

import attrs
import pytest

from tony_provider.operators import deferral
from tony_provider.operators.deferral import Deferral
from tony_provider.operators.tries import TaskTry
from tony_provider.state_store import StateStore
from tony_provider.triggers.deferred_job import DeferredJob

LOG = cast(Any, logging.getLogger(__name__))
LEFT = Deferral(
    try_id="id-1",
    max_tries=1,
    job=DeferredJob(
        tony_conn_id="no_such_connection",
        proxy_user=None,
        slug="x",
        digest="0",
        application_id="application_1700000000000_0001",
        kill=True,
    ),
)


class Kept(dict[str, Any]):
    """Stands for Airflow's store."""

    def set(self, key: str, value: Any, *, retention: timedelta | None) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


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
    assert LEFT.was_cut_short(TaskTry(number, max_tries, f"id-{number}")) is cut_short


@pytest.mark.parametrize(
    ("left", "this_try", "stays", "said"),
    [
        (
            LEFT,
            TaskTry(2, 2, "id-2"),
            True,
            "_0001 of an earlier try could not be ended, .* no connection 'no_such_conn",
        ),
        (LEFT, TaskTry(2, 1, "id-2"), False, ""),
        (attrs.evolve(LEFT, job=attrs.evolve(LEFT.job, kill=False)), TaskTry(2, 2, "id-2"), False, ""),
    ],
)
def test_what_cannot_be_ended_is_told_and_kept(
    airflow_db: None, caplog: pytest.LogCaptureFixture, left: Deferral, this_try: TaskTry, stays: bool, said: str
) -> None:
    kept = Kept()
    store = StateStore(cast(Any, {"task_state_store": kept}), LOG)
    deferral.note(store, left)
    deferral.end_what_was_left(store, this_try, LOG)
    assert bool(kept) is stays
    assert re.search(said, caplog.text) if said else not caplog.records


def test_a_note_of_another_release_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept(tony_deferral={"try": 3})
    deferral.end_what_was_left(StateStore(cast(Any, {"task_state_store": kept}), LOG), TaskTry(2, 2, "id-2"), LOG)
    assert "cannot be told: not a valid Deferral" in caplog.text

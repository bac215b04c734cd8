"""What tasks keep, and where, on an Airflow without a task state store: the newest one, which says that it is older.

`make airflows` runs whole Airflows that are.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, cast

import pytest
from airflow.sdk import DAG, BaseOperator

from tests.airflow_dags import run
from tests.operators.jobs import job
from tests.operators.trainings import ONCE, Training
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.try_state import (
    STATE_KEY,
    StateStore,
    TrainingNotes,
    TryInfo,
    may_resubmit,
    remember,
    remembered,
)
from tony_provider.runtime.common.bounds import RECORD_LIMIT
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import read_bytes, write_atomically

pytestmark = pytest.mark.usefixtures("older_airflow")
LOG = cast(Any, logging.getLogger(__name__))
ID = "application_1700000000000_0001"


@pytest.fixture
def notes(local: TonyHook) -> TrainingNotes:
    return TrainingNotes(local, lambda: local.identity(dag_id="clicks", run_id="today", task_id="train"))


def file_of(notes: TrainingNotes, key: str) -> str:
    return uris.join(notes.hook.layout.notes_dir(notes.identity()), f"{key}.json")


def test_what_outlives_a_try_is_a_file_of_its_training(notes: TrainingNotes, local: TonyHook) -> None:
    store = StateStore(cast(Any, {"ti": None}), LOG, notes)
    assert not store.is_airflows
    assert remembered(store) is None
    remember(store, ID)
    assert read_bytes(local.storage(), file_of(notes, STATE_KEY)) == f'"{ID}"'.encode()
    assert remembered(store) == ID
    for _ in range(2):  # the second time there is none
        store.delete(STATE_KEY)
        assert remembered(store) is None


@pytest.mark.parametrize("content", [b"changed by hand", b'"\xff"', b"[" * 5000, b'"' + b"x" * RECORD_LIMIT + b'"'])
def test_a_note_that_cannot_be_read_is_told_and_is_none(
    notes: TrainingNotes, local: TonyHook, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A job may write there."""
    write_atomically(local.storage(), file_of(notes, STATE_KEY), content)
    assert remembered(StateStore(cast(Any, {"ti": None}), LOG, notes)) is None
    assert f"could not read {STATE_KEY}: " in caplog.text
    assert len(caplog.text) < 1000


def test_without_a_training_nothing_outlives_a_try() -> None:
    store = StateStore(cast(Any, {"ti": None}), LOG)
    assert store.set("key", 1, forever=True) is False
    assert store.get("key", forever=True) is None
    store.delete("key")


class Counting(BaseOperator):
    """Its first try fails, and says before what it was told."""

    told: list[tuple[Any, Any, bool]] = []  # noqa: RUF012 - of all tries

    def execute(self, context: Any) -> None:
        store = StateStore(context, LOG)
        before = store.get("mine")
        store.set("mine", {"try": context["ti"].try_number})
        anew = may_resubmit(store, TryInfo.of(context))
        self.told.append((before, store.get("mine"), anew))
        if context["ti"].try_number == 1:
            raise RuntimeError("a next one, please")


def test_what_a_try_keeps_for_itself_is_an_xcom_that_goes_with_it(airflow_db: None) -> None:
    Counting.told.clear()
    with DAG("older", schedule=None) as dag:
        Counting(task_id="count", retries=1, retry_delay=timedelta(0))
    assert run(dag).state == "success"
    assert Counting.told == [(None, {"try": 1}, True), (None, {"try": 2}, True)]


def test_an_application_that_the_chains_have_lost_is_found_by_the_notes(training: Training) -> None:
    spec = job(f"while ! test -e {training.mended}; do sleep 0.1; done", **ONCE)

    def lose(_: Any) -> None:
        training.hook.storage().remove(training.newest.uri, recursive=True)
        training.mended.touch()

    fails = iter([True, False])

    def post_execute(*_: Any) -> None:
        if next(fails):
            raise RuntimeError("the API server does not answer")

    done = training.again(
        spec,
        wait_for_completion=False,
        retries=1,
        retry_delay=timedelta(0),
        post_execute=post_execute,
        on_retry_callback=lose,
    )
    assert done.state == "success"
    assert training.applications == [done.results["train"]["application_id"]]
    assert training.said("Attaching to|succeeded in an earlier try")
    assert None not in done.results["train"].values()

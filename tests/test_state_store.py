"""Airflow's store of a task, with a stand-in for one that fails."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse

from tony_provider.operators.try_state import StateStore

LOG = cast(Any, logging.getLogger(__name__))


class Fails:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def _fail(self, *_: Any, **__: Any) -> None:
        raise self.error

    get = set = delete = _fail


@pytest.mark.parametrize("error", [AirflowRuntimeError(ErrorResponse()), OSError("the backend's disk is full")])
def test_a_store_that_fails_is_told_of_and_ends_nothing(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = StateStore(cast(Any, {"task_state_store": Fails(error)}), LOG)
    assert store.get("tony_key") is None
    assert store.set("tony_key", 1) is False
    store.delete("tony_key")
    assert len(caplog.records) == 3
    assert all("tony_key" in record.getMessage() and str(error) in record.getMessage() for record in caplog.records)


class Kept(dict[str, Any]):
    """Stands for Airflow's store, or for the notes of a training."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


def test_what_is_stored_forever_outlives_airflows_store_and_a_failure_of_either() -> None:
    airflows, notes = Kept(), Kept()
    store = StateStore(cast(Any, {"task_state_store": airflows}), LOG, cast(Any, notes))
    assert store.set("tony_key", 1, forever=True)
    assert airflows == notes == {"tony_key": 1}
    airflows.clear()
    assert store.get("tony_key", forever=True) == 1
    assert store.get("tony_key") is None
    store.delete("tony_key")
    assert notes == {}

    broken = cast(Any, Fails(OSError("the store is away")))
    for context, kept in (({"task_state_store": broken}, notes), ({"task_state_store": airflows}, broken)):
        half = StateStore(cast(Any, context), LOG, cast(Any, kept))
        assert half.set("tony_key", 2, forever=True)
        assert half.get("tony_key", forever=True) == 2
        half.delete("tony_key")
    assert airflows == notes == {}


def test_a_value_of_one_try_is_no_note() -> None:
    airflows, notes = Kept(), Kept()
    assert StateStore(cast(Any, {"task_state_store": airflows}), LOG, cast(Any, notes)).set("tony_key", 1)
    assert (airflows, notes) == ({"tony_key": 1}, {})

"""Airflow's store of a task, with a stand-in for one that fails."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse

from tony_provider.state_store import StateStore

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

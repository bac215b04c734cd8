"""TonyHeartbeatSensor in a real Airflow (dag.test), on the real embedded local cluster."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.hooks.test_control import master_of
from tests.operators.jobs import Marker
from tests.sensors.watched import MODES, running, submit, watch
from tony_provider.exceptions import TonyJobMissed, TonyJobStale
from tony_provider.hooks.tony import TonyHook
from tony_provider.sensors.tony import TonyHeartbeatSensor

STEPS = """
    for step in 1 2 3 4 5 6 7 8; do echo '{"step": '$step', "total_steps": 8}' >> $TONY_METRICS_FILE; sleep 0.2; done
"""


@pytest.mark.parametrize("how", MODES)
def test_a_training_that_goes_well_ends_it_well(local: TonyHook, how: dict[str, Any]) -> None:
    application_id = submit(local, STEPS)
    done = watch(TonyHeartbeatSensor, train_task_id="train", **how)
    assert done.state == "success", done.errors
    result = done.results["watch"]
    assert (result["application_id"], result["state"]) == (application_id, "SUCCEEDED")
    assert (result["step"], result["total_steps"]) == (8, 8)


@pytest.mark.parametrize("how", MODES[:2])
def test_a_training_that_fails_fails_it_with_what_failed(local: TonyHook, how: dict[str, Any]) -> None:
    application_id = submit(local, "echo the data are gone >&2; exit 7")
    error = watch(TonyHeartbeatSensor, application_id=application_id, **how).errors["watch"]
    assert isinstance(error, TonyJobMissed)
    assert "the data are gone" in str(error)


@pytest.mark.parametrize(
    ("how", "on_stale"),
    [
        pytest.param({"deferrable": True}, "fail", marks=pytest.mark.long),
        pytest.param({"deferrable": True}, "kill", marks=pytest.mark.long),
        ({"mode": "poke"}, "kill"),
    ],
)
def test_an_application_master_that_hangs(
    local: TonyHook, marker: Marker, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], on_stale: str
) -> None:
    monkeypatch.setattr("tony_provider.cluster.local.local_cluster._KILL_SLACK", 1.0)
    monkeypatch.setattr("tony_provider.watching.termination.CONTROL_SECONDS", 1.0)
    timeouts = {"grace": "1s", "checkpoint": "1s"}
    with running(local, marker.path, marker.forever, timeouts=timeouts) as application_id:
        os.kill(master_of(application_id), signal.SIGSTOP)
        arguments = {"max_heartbeat_age": timedelta(seconds=10), "on_stale": on_stale, **how}
        error = watch(TonyHeartbeatSensor, train_task_id="train", **arguments).errors["watch"]
        assert isinstance(error, TonyJobStale)
        for words in (
            application_id,
            "application master has not updated the status",
            "worker:0 on ",
            "the last heartbeat of ",
        ):
            assert words in str(error)
        application = local.application(application_id)
        assert application is not None
        assert application.is_final is (on_stale == "kill")
        if on_stale == "kill":
            assert "Ended by a sensor of Airflow" in application.diagnostics
            assert "worker:0" in application.diagnostics


@pytest.mark.parametrize("how", MODES)
def test_a_training_that_crawls(local: TonyHook, marker: Marker, how: dict[str, Any]) -> None:
    steps = f"""
        touch {marker.path}
        for step in $(seq 600); do echo '{{"step": '$step'}}' >> $TONY_METRICS_FILE; sleep 0.2; done
    """
    arguments = {"max_heartbeat_age": None, "min_steps_per_second": 1000.0, "slow_for": 1.0, **how}
    with running(local, marker.path, steps):
        error = watch(TonyHeartbeatSensor, train_task_id="train", **arguments).errors["watch"]
        assert isinstance(error, TonyJobStale)
        assert "worker:0 on " in str(error)
        assert "steps per second" in str(error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_stale": "restart"}, "'fail' or 'kill'"),
        ({"max_heartbeat_age": 3}, "at least 10"),
        ({"max_heartbeat_age": -1}, "above 0"),
        ({"max_heartbeat_age": None}, "set at least one of them"),
        ({"min_steps_per_second": 0}, "above 0"),
        ({"min_steps_per_second": "0.5"}, "min_steps_per_second is '0.5' and should be a number above 0"),
        ({"slow_for": timedelta(0)}, "above 0"),
        ({"task_types": "worker"}, r"\['worker'\]"),
    ],
)
def test_arguments_that_make_no_sense_are_told_when_the_dag_is_read(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TonyHeartbeatSensor(task_id="watch", train_task_id="train", **arguments)

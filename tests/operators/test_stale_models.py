"""Which runs TonyStaleModels returns. Stand-ins give the stale models and the states of Airflow's runs."""

from __future__ import annotations

import pytest

from tony_provider.cluster.records.staleness import ModelReport, ModelState, StaleRun
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.stale_models import TonyStaleModels


class Instance:
    """A task instance, which Airflow asks for the number of runs in some states."""

    def __init__(self, states: dict[str, str]) -> None:
        self.states = states

    def get_dr_count(self, *, dag_id: str, run_ids: list[str], states: list[str]) -> int:
        return sum(self.states.get(each) in states for each in run_ids)


def returned(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, str], waits_for: dict[str, list[str]], most: int
) -> list[str]:
    reports = [
        ModelReport(
            training=name, state=ModelState.STALE, run=StaleRun("daily", name), waits_for=waits_for.get(name, [])
        )
        for name in states
    ]
    monkeypatch.setattr(TonyHook, "stale_models", lambda *_, **__: reports)
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", '{"conn_type": "tony", "extra": {"backend": "local"}}')
    found = TonyStaleModels(task_id="stale", most=most).execute({"ti": Instance(states)})  # type: ignore[typeddict-item]
    return [each["trigger_run_id"] for each in found]


def test_failed_runs_come_last_and_active_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "failed", "b": "running", "c": "success", "d": "failed"}
    assert returned(monkeypatch, states, {}, 2) == ["c", "a"]


def test_runs_that_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    states = {"a": "success", "b": "success"}
    assert returned(monkeypatch, states, {"a": ["b"], "b": ["a"]}, 10) == []
    assert "wait for each other" in caplog.text + capsys.readouterr().out

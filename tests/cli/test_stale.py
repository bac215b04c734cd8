"""Runs are repeated through Airflow's API, each after those that it depends on. A stand-in answers as the API."""

from __future__ import annotations

import io
from argparse import Namespace

import attrs
import pytest
import requests
from requests.adapters import HTTPAdapter

from tony_provider.cli.stale import AirflowApi, ApiProblem, Retraining, _retrain
from tony_provider.cluster.records.staleness import ModelReport, ModelState, StaleRun

A, B, C, D = (StaleRun("daily", name) for name in "ABCD")


@attrs.define
class StandIn:
    """States of runs; a cleared run is queued until the test lets it end."""

    states: dict[StaleRun, str] = attrs.field(factory=dict)
    cleared: list[StaleRun] = attrs.field(factory=list)

    def state(self, run: StaleRun) -> str:
        return self.states.get(run, "success")

    def clear(self, run: StaleRun) -> None:
        self.cleared.append(run)
        self.states[run] = "queued"


def retraining(api: StandIn, most: int = 10) -> Retraining:
    return Retraining(api, {A: set(), B: {A}, C: {A, B}, D: set()}, most)  # type: ignore[arg-type]


def test_a_run_waits_for_its_ancestors() -> None:
    api = StandIn()
    work = retraining(api)
    work.step()
    assert api.cleared == [A, D]
    api.states[A] = "success"
    work.step()
    assert api.cleared == [A, D, B]
    api.states.update({B: "success", D: "success"})
    work.step()
    assert api.cleared == [A, D, B, C]
    api.states[C] = "success"
    work.step()
    assert (work.done, work.active, work.waiting) == (4, set(), {})


def test_descendants_of_a_failed_run_stay() -> None:
    api = StandIn()
    work = retraining(api, most=1)
    work.step()
    assert api.cleared == [A]
    api.states[A] = "failed"
    work.step()
    assert api.cleared == [A, D]
    api.states[D] = "success"
    work.step()
    assert (work.failed, work.done, set(work.waiting)) == ([A], 1, {B, C})


def test_a_run_of_an_interrupted_command_is_not_cleared_again() -> None:
    api = StandIn({A: "running"})
    work = retraining(api)
    work.step()
    assert api.cleared == [D]
    assert work.active == {A, D}


def test_a_deleted_run_is_not_created_again() -> None:
    api = StandIn({A: "deleted"})
    work = retraining(api)
    work.step()
    work.step()
    assert (api.cleared, work.failed, set(work.waiting)) == ([D], [A], {B, C})


class Answer(HTTPAdapter):
    """Answers each request with a status of 404 and a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def send(self, request: requests.PreparedRequest, *args: object, **more: object) -> requests.Response:
        answer = requests.Response()
        answer.request, answer.status_code, answer.raw = request, 404, io.BytesIO(self.text.encode())
        return answer


def test_a_run_that_airflow_does_not_know_was_deleted() -> None:
    session = requests.Session()
    api = AirflowApi("http://airflow", session)
    session.mount("http://", Answer('{"detail":"The DagRun with dag_id: `daily` and run_id: `A` was not found"}'))
    assert api.state(A) == "deleted"
    session.mount("http://", Answer('{"detail":"Not Found"}'))
    with pytest.raises(ApiProblem, match="404"):
        api.state(A)


def test_the_api_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CLI_TOKEN", raising=False)
    with pytest.raises(ApiProblem, match="AIRFLOW_CLI_TOKEN must contain a token"):
        AirflowApi.of("http://localhost:8080")


def test_an_api_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CLI_TOKEN", "token")
    with pytest.raises(ApiProblem, match="check --api-url"):
        AirflowApi.of("http://127.0.0.1:9").state(A)


def test_runs_that_wait_for_each_other() -> None:
    reports = [report(A, []), report(B, ["A"]), report(A, ["B"], name="fine")]
    with pytest.raises(SystemExit, match="wait for each other; repeat their tasks one by one: daily A, daily B"):
        _retrain(StandIn(), reports, Namespace(max_active_runs=1))  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="at least 1"):
        _retrain(StandIn(), reports, Namespace(max_active_runs=0))  # type: ignore[arg-type]


def report(run: StaleRun, waits_for: list[str], name: str | None = None) -> ModelReport:
    return ModelReport(training=name or run.run_id, state=ModelState.STALE, waits_for=waits_for, run=run)

"""As much of MLflow's client as the provider uses, where MLflow is not installed: one server, in memory.

It refuses what MLflow refuses, as ``test_with_mlflow`` sees it of a real one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import attrs
import pytest

_PLAIN = re.compile(r"[\w\-. /]+", re.ASCII)


class MlflowException(Exception):
    def __init__(self, message: str, error_code: str = "INTERNAL_ERROR") -> None:
        super().__init__(message)
        self.error_code = error_code


@attrs.frozen
class Metric:
    key: str
    value: float
    timestamp: int
    step: int


@attrs.frozen
class Param:
    key: str
    value: str


@attrs.frozen
class RunTag:
    key: str
    value: str


@attrs.define
class Info:
    run_id: str
    experiment_id: str
    run_name: str
    status: str = "RUNNING"
    lifecycle_stage: str = "active"
    start_time: int | None = None
    end_time: int | None = None


@attrs.define
class Data:
    params: dict[str, str] = attrs.field(factory=dict)
    tags: dict[str, str] = attrs.field(factory=dict)
    points: list[Metric] = attrs.field(factory=list)


@attrs.define
class Run:
    info: Info
    data: Data = attrs.field(factory=Data)


@attrs.frozen
class Experiment:
    experiment_id: str


@attrs.define
class Server:
    """What it holds, who has asked, and whether it answers."""

    experiments: dict[str, Experiment] = attrs.field(factory=dict)
    runs: list[Run] = attrs.field(factory=list)
    asked_by: set[tuple[str, str | None]] = attrs.field(factory=set)  # address, token
    is_away: bool = False

    def client(self, tracking_uri: str) -> Client:
        return Client(self, tracking_uri)


@attrs.frozen
class Client:
    _server: Server
    _uri: str

    def get_experiment_by_name(self, name: str) -> Experiment | None:
        return self._asked().experiments.get(name)

    def create_experiment(self, name: str) -> str:
        experiments = self._asked().experiments
        if name in experiments:
            raise MlflowException(f"{name} exists", "RESOURCE_ALREADY_EXISTS")
        experiments[name] = Experiment(str(len(experiments) + 1))
        return experiments[name].experiment_id

    def get_run(self, run_id: str) -> Run:
        for run in self._asked().runs:
            if run.info.run_id == run_id:
                return run
        raise MlflowException(f"no {run_id}", "RESOURCE_DOES_NOT_EXIST")

    def search_runs(
        self, experiment_ids: Sequence[str], filter_string: str, *, max_results: int, order_by: Sequence[str]
    ) -> list[Run]:
        wanted = re.fullmatch(r"tags\.`([\w.]+)` = '([^']*)'", filter_string)
        assert wanted
        assert list(order_by) == ["attributes.start_time DESC"]
        found = [
            run
            for run in reversed(self._asked().runs)
            if run.info.experiment_id in experiment_ids
            and run.info.lifecycle_stage == "active"
            and run.data.tags.get(wanted[1]) == wanted[2]
        ]
        return found[:max_results]

    def create_run(self, experiment_id: str, start_time: int | None, tags: dict[str, str], run_name: str) -> Run:
        runs = self._asked().runs
        info = Info(f"run{len(runs)}", experiment_id, run_name, start_time=start_time)
        runs.append(Run(info, Data(tags=dict(tags))))
        return runs[-1]

    def update_run(self, run_id: str, *, status: str) -> None:
        self.get_run(run_id).info.status = status

    def set_terminated(self, run_id: str, status: str, end_time: int | None) -> None:
        info = self.get_run(run_id).info
        info.status, info.end_time = status, end_time

    def log_batch(
        self,
        run_id: str,
        *,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        data = self.get_run(run_id).data
        assert len(metrics) <= 1000
        assert len(params) <= 100
        for key in [*(metric.key for metric in metrics), *(param.key for param in params)]:
            assert _PLAIN.fullmatch(key), key
        for param in params:
            if data.params.setdefault(param.key, param.value) != param.value:
                raise MlflowException(f"{param.key} has another value", "INVALID_PARAMETER_VALUE")
        data.points.extend(metrics)
        data.tags.update({tag.key: tag.value for tag in tags})

    def _asked(self) -> Server:
        assert int(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]) <= 10
        self._server.asked_by.add((self._uri, os.environ.get("MLFLOW_TRACKING_TOKEN")))
        if self._server.is_away:
            raise MlflowException("Max retries exceeded with url: /api/2.0/mlflow")
        return self._server


def install(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server's client be what ``import mlflow`` finds."""
    modules: dict[str, dict[str, Any]] = {
        "mlflow": {},
        "mlflow.tracking": {"MlflowClient": server.client},
        "mlflow.entities": {"Metric": Metric, "Param": Param, "RunTag": RunTag},
        "mlflow.exceptions": {"MlflowException": MlflowException},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)

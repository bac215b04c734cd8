"""A training's run of MLflow, without an Airflow around it."""

from __future__ import annotations

from typing import Any

from tests.operators.telemetry.tries import RUN
from tony_provider.hooks.mlflow_server import MlflowServer
from tony_provider.operators.mlflow_run import MlflowOptions, MlflowRun
from tony_provider.operators.try_state import StateStore
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job

TRAINING = "clicks-train-0123456789abcdef0123"
ADDRESS = "http://mlflow.example.com:5000"


class Memory(StateStore):
    """Airflow's store of a task, as far as it is needed."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, *, forever: bool = False) -> Any:
        return self.kept.get(key)

    def set(self, key: str, value: Any, *, forever: bool = False) -> bool:
        self.kept[key] = value
        return True


def training_run(uri: str = ADDRESS, store: StateStore | None = None, **credentials: str) -> MlflowRun:
    server = MlflowServer(uri, credentials)
    return MlflowRun(MlflowOptions("mlflow_default"), server, TRAINING, RUN, store or Memory())


def spec(**more: Any) -> JobSpec:
    tasks = {"worker": {"instances": 2, "memory": "1GiB", "command": "python train.py --key hunter22"}}
    return parse_job({"framework": "standalone", "tasks": tasks, "env": {"RATE": "0.1"}, **more})

"""What the parse of a DAG file loads of ours: every DAG file pays for it, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = (
    "tony_provider.operators.tony",
    "tony_provider.sensors.tony",
    "tony_provider.decorators.task_tony",
    "tony_provider.publishing",
)
# Of others, and of ours what only a task that runs, or the triggerer, needs.
FORBIDDEN = (
    "requests",
    "urllib3",
    "cryptography",
    "google.protobuf",
    "grpc",
    "cattrs",
    "yarn_api_client",
    "airflow.triggers",
    "tony_provider.cluster.interface",
    "tony_provider.cluster.checks.doctor",
    "tony_provider.cluster.open_cluster",
    "tony_provider.hooks",
    "tony_provider.operators.submission",
    "tony_provider.operators.training_try",
    "tony_provider.runtime.common.codec",
    "tony_provider.runtime.hadoop",
    "tony_provider.runtime.jobspec",
    "tony_provider.runtime.storage",
    "tony_provider.sensors.sensor_run",
    "tony_provider.triggers",
    "tony_provider.watching.termination",
)
# Which load all of these, together.
RUNNING = (
    "tony_provider.operators.training_try",
    "tony_provider.sensors.sensor_run",
    "tony_provider.cluster.checks.doctor",
    "tony_provider.cluster.open_cluster",
    "tony_provider.cluster.yarn.yarn_cluster",
    "grpc",
)
# Those of Airflow's own SDK, which every DAG file loads, are left out.
LOADED = """
import importlib, json, sys
from airflow.providers.common.compat.sdk import DAG, BaseOperator, BaseSensorOperator, DecoratedOperator, XCom, conf
from airflow.sdk import task
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded(*modules: str) -> list[str]:
    """What a fresh interpreter loads for them, beyond Airflow's SDK."""
    command = [sys.executable, "-c", LOADED, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_dag_file_does_not_load_what_only_a_running_task_needs(module: str) -> None:
    found = loaded(module)
    assert module in found
    named = [name for name in found if any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN)]
    assert named == []


def test_what_is_forbidden_is_what_a_running_task_loads() -> None:
    """Or a name that has changed would forbid nothing."""
    found = loaded(*RUNNING)
    missing = [each for each in FORBIDDEN if not any(name == each or name.startswith(f"{each}.") for name in found)]
    assert missing == []


def test_the_plugin_which_every_process_of_airflow_loads_opens_neither_a_store_nor_the_portal() -> None:
    found = loaded("tony_provider.portal.plugin")
    assert "tony_provider.portal.plugin" in found
    dear = ("tony_provider.portal.api", "tony_provider.runtime.storage", "fastapi", "sqlalchemy")
    assert [name for name in found if name.startswith(dear)] == []


def test_a_task_that_begins_does_not_load_the_rules_of_advice() -> None:
    """Those who end with a job load them, and those few that apply advice."""
    found = loaded(*RUNNING)
    assert "tony_provider.operators.advice" in found
    assert [name for name in found if name.startswith("tony_provider.advice")] == []

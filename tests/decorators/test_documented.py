"""The DAG of docs/dags/task-decorator.md, as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.bases.decorator import DecoratedMappedOperator

from tests.decorators.test_function import run
from tests.demo.airflow import REPOSITORY
from tony_provider.decorators.function_call import function_command_patch
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.sdk import tony_sdk


def test_the_dag_parses_and_its_function_trains(
    airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "docs" / "dags" / "task-decorator.md").read_text(), re.DOTALL
    )
    (tmp_path / "search_rates.py").write_text(source)
    bag = DagBag(dag_folder=str(tmp_path))
    assert not bag.import_errors
    fit = bag.dags["search_rates"].get_task("fit")
    assert isinstance(fit, DecoratedMappedOperator)
    job = fit.partial_kwargs["job"]
    assert parse_job(job, overrides=function_command_patch(job, "fit")).tasks["worker"].memory == 1024
    monkeypatch.syspath_prepend(Path(tony_sdk.__file__).parent)
    assert run(fit.python_callable, 0.1, day="2026-01-05")["error"] < 0.1

"""The README's DAG, as written."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time.context import MacrosAccessor
from airflow.sdk.plugins_manager import integrate_macros_plugins

from tests.demo.airflow import REPOSITORY
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.parsing.parse import parse_job


def test_the_dag_parses_and_its_job_is_valid(airflow_db: None, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    (source,) = [block for block in blocks if "retrain_clicks" in block]
    (tmp_path / "retrain_clicks.py").write_text(source)
    bag = DagBag(dag_folder=str(tmp_path))
    assert not bag.import_errors
    task = bag.dags["retrain_clicks"].get_task("train")
    assert isinstance(task, TonyTrainOperator)
    # As Airflow renders it, for a run without a logical date too: everything is text then.
    integrate_macros_plugins()
    run = SimpleNamespace(run_after=datetime(2026, 1, 2, tzinfo=UTC))
    context = {"params": {"workers": 4}, "dag_run": run, "macros": MacrosAccessor()}
    task.render_template_fields(cast(Any, context))
    job = parse_job(task.job)
    worker = job.tasks["worker"]
    assert (worker.instances, worker.memory, worker.gpus) == (4, 2048, 1)
    assert job.env == {"TF_USE_LEGACY_KERAS": "1"}  # Keras 3, TensorFlow's own, fails under the strategy that is named
    assert worker.command == "python train_clicks.py --day 2026-01-02"
    assert (job.python_env, [file.source for file in job.files]) == ("hdfs:///envs/tf.tar.gz", ["train_clicks.py"])

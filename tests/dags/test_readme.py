"""The README's DAG, as written."""

from __future__ import annotations

import re
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

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
    job = parse_job(task.job)
    worker = job.tasks["worker"]
    assert (job.framework, worker.instances, worker.memory, worker.gpus) == ("pytorch", 3, 16384, 1)
    assert worker.command == "torchrun train.py"
    assert (job.python_env, [file.source for file in job.files]) == ("hdfs:///envs/torch.tar.gz", ["train.py"])
    assert task.retries == 3

"""The root of a DAG's bundle, below which the files of its jobs lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import BundleDagBag

from tony_provider.operators.submission import bundle_folder

DAG_FILE = """
from airflow.sdk import DAG
with DAG("nested", schedule=None):
    pass
"""


@pytest.mark.parametrize("relative", ["dag.py", "team/clicks/dag.py"])
def test_a_bundle_s_root_is_above_all_of_its_dag_files(airflow_db: None, tmp_path: Path, relative: str) -> None:
    (tmp_path / "v2").mkdir()
    (current := tmp_path / "current").symlink_to(tmp_path / "v2")
    file = current / relative
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(DAG_FILE)
    (dag,) = BundleDagBag(dag_folder=str(current), bundle_path=current, bundle_name="b").dags.values()
    assert bundle_folder(dag) == current
    dag.relative_fileloc = None
    assert bundle_folder(dag) == file.parent
    dag.relative_fileloc = "other/file.py"
    assert bundle_folder(dag) == file.parent

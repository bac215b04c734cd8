"""Airflow runs nothing of what foreign jobs hold, and each of their values arrives unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.importers.foreign_jobs import SYSTEMS, hostile, options
from tests.rendering import parsed_dag, rendered
from tony_provider.cli.job_file import import_job, read_job_file
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.importers.read_job import imported_from
from tony_provider.operators.submission import job_alone
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.parsing.parse import parse_job

CANARY = Path("/dev/shm") / "tony-canary" if Path("/dev/shm").is_dir() else Path("/tmp") / "tony-canary"
ANY = st.text(st.characters(exclude_categories=()), max_size=12)
HOSTILE = st.lists(st.sampled_from(hostile(CANARY)) | ANY, min_size=1, max_size=3).map("".join)


@pytest.fixture
def folder(tmp_path: Path, airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where the relative paths of a call begin
    CANARY.unlink(missing_ok=True)
    shutil.copy(Path(__file__).parents[1] / "operators" / "greeting.tony.yaml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_known_text_arrives_unchanged_and_runs_nothing(folder: Path, system: str) -> None:
    for text in hostile(CANARY):
        _arrives(folder, system, [text])


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(HOSTILE, min_size=3, max_size=3))
def test_any_text_arrives_unchanged_and_runs_nothing(folder: Path, system: str, texts: list[str]) -> None:
    assume(_arrives(folder, system, texts))


def _arrives(folder: Path, system: str, texts: list[str]) -> bool:
    """Import a job with these texts. Return False if nothing could be made of it."""
    job_file, dag_file = folder / "imported.tony.yaml", folder / "imported_dag.py"
    try:
        words = SYSTEMS[system](folder, texts)
        found = imported_from(words, system=system, command="python train.py")
    except NotImportable:
        return False
    # Python takes bytecode of a former example for the file's if both are of the same second and size.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    import_job(options(words, system, job_file, dag_file))
    _is_in_dag(found, parsed_dag(folder, dag_file.name))
    _is_in_job_file(found, job_file)
    assert not CANARY.exists(), f"{texts} ran"
    return True


def _is_in_dag(found: ImportedJob, task: TonyTrainOperator) -> None:
    task = rendered(task)
    assert task.job == found.job
    for name, value in found.arguments.items():
        assert getattr(task, name) == value


def _is_in_job_file(found: ImportedJob, path: Path) -> None:
    """Both in the DAG of an author who names the file, and on the command line."""
    with DAG("authors", schedule=None, template_searchpath=str(path.parent)):
        task = rendered(TonyTrainOperator(task_id="train", job=path.name))
    assert parse_job(job_alone(task.job)) == parse_job(found.job) == parse_job(read_job_file(path).job)

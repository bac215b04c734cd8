"""Each framework has a page, whose example is a job, and which says what its processes find; what runs here is run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.documents.framework_examples import FOLDER, files, job, load, model_files, page, place, run_example
from tests.runtime.frameworks.jobs import cluster_of
from tony_provider.runtime.frameworks.base import framework_names, get_framework, task_environment
from tony_provider.runtime.parsing.parse import parse_job

__all__ = ["place"]

SECTIONS = ["Example", "Environment variables", "Failures", "Elastic training", "Several processes"]
LAST_SECTIONS = ["Migration", "Limits"]


def test_each_has_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(framework_names())


@pytest.mark.parametrize("framework", framework_names())
def test_pages_have_the_same_sections(framework: str) -> None:
    headings = re.findall("^## (.+)$", page(framework).read_text(), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS + LAST_SECTIONS] == SECTIONS + LAST_SECTIONS


@pytest.mark.parametrize("framework", framework_names())
def test_examples_are_jobs_of_it(framework: str, airflow_db: None, tmp_path: Path) -> None:
    dag = load(framework, tmp_path)
    for name in files(dag):
        compile((tmp_path / name).read_text(), name, "exec")
    with_function = {"tasks": {"worker": {"command": "true"}}} if framework == "standalone" else None
    assert parse_job(job(dag), overrides=with_function).framework == framework


@pytest.mark.parametrize("framework", framework_names())
def test_pages_name_every_variable_of_the_framework(framework: str, airflow_db: None, tmp_path: Path) -> None:
    dag = load(framework, tmp_path)
    parsed = parse_job(job(dag), overrides={"tasks": {"worker": {"command": "true"}}})
    env = task_environment(parsed, cluster_of(parsed), "worker", 0).env
    theirs = {name for name in env if not name.startswith(("TONY_", "CUDA_"))}
    known = get_framework(framework)
    theirs |= known.made_variables | known.local_variables | known.secret_variables
    said = set(re.findall(r"`([A-Z][A-Za-z_]+)`", page(framework).read_text()))
    assert theirs - said == set()


@pytest.mark.long  # the one of standalone runs as well
def test_the_example_of_generic_adds_up(place: Path) -> None:
    assert run_example("generic", place, None)["returned"] == {"total": 3}


def test_the_example_of_standalone_counts_its_part(place: Path) -> None:
    assert run_example("standalone", place, None) == {"total": sum(range(0, 1000, 3))}


@pytest.mark.long  # the one of standalone runs as well
def test_the_example_of_tensorflow_trains(place: Path) -> None:
    assert model_files(run_example("tensorflow", place, sys.prefix)) == ["model.keras"]

"""Job and DAG files as they are written: formatted, parsed by Airflow, rendered and valid."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.param import ParamsDict
from hypothesis import given
from hypothesis import strategies as st

from tests.rendering import parsed_dag, rendered
from tony_provider.job_files.parameters import split_parameters
from tony_provider.job_files.write_files import DagFile, dag_id_of, job_text, python_literal, with_moved_paths
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.parsing.parse import load_source, parse_job

JOB: dict[str, Any] = {
    "framework": "tensorflow",
    "name": "retrain clicks",
    "files": ["train.py", "hdfs:///data/vocab.txt::vocab.txt", *(f"hdfs:///data/part-{n}.txt" for n in range(4))],
    "env": {"FAST": "{{ params.fast }}", "QUOTED": 'it\'s "both"', "PATHS": "C:\\temp"},
    "timeouts": {"lifetime": "1d"},
    "tasks": {
        "worker": {
            "instances": "{{ params.workers }}",
            "memory": "8GiB",
            "command": "set -e\npython train.py --rate={{ params.rate }}\n",
        },
        "ps": {"command": f"python train.py {' '.join(f'--option-{n}={n}' for n in range(20))}"},
    },
}
PARAMETERS: dict[str, Any] = {
    "workers": {"type": "integer", "default": 2, "minimum": 1, "maximum": 8, "title": "Workers"},
    "rate": {"type": "number", "default": 0.01, "description": "Of the optimizer, whose steps are so long. " * 3},
    "fast": {"type": "boolean", "default": False},
}


def dag_file(**more: Any) -> DagFile:
    parameters, job = split_parameters({"parameters": PARAMETERS, **JOB})
    return DagFile("retrain_clicks", job, parameters, origin="clicks.tony.yaml", start=date(2026, 1, 2), **more)


def formatted(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"schedule": "@daily", "arguments": {"retries": 3, "tony_conn_id": "other", "proxy_user": "carol"}},
        {"notes": ['key ("""x"""): why \\ not', "word " * 60]},
    ],
)
def test_a_dag_file_is_formatted_and_parsed_and_its_job_valid(
    tmp_path: Path, airflow_db: None, more: dict[str, Any]
) -> None:
    path = tmp_path / "clicks_dag.py"
    path.write_text(dag_file(**more).text())
    assert formatted(path) == formatted(path, "--line-length", "120") == ""
    bag = DagBag(dag_folder=str(tmp_path))
    assert bag.import_errors == {}
    dag = bag.dags["retrain_clicks"]
    (task,) = dag.tasks
    assert isinstance(task, TonyTrainOperator)
    assert task.retries == more.get("arguments", {}).get("retries", task.retries)
    assert dag.params.get_param("workers").schema == {"type": "integer", "title": "Workers", "minimum": 1, "maximum": 8}
    context: Any = {"params": ParamsDict(dag.params).validate()}
    task.render_template_fields(context)
    job = parse_job(task.job)
    assert (job.tasks["worker"].instances, job.env["FAST"], job.env["QUOTED"]) == (2, "False", 'it\'s "both"')
    assert job.tasks["worker"].command.strip().endswith("--rate=0.01")


def test_a_job_without_parameters_is_no_template(tmp_path: Path, airflow_db: None) -> None:
    """Bash's length of a variable begins like a comment of Jinja's, and Docker's formats like a template."""
    command = "echo ${#HOME} && docker ps --format '{{ .Names }}'"
    out = "{% endraw %}{{ macros.json.codecs.builtins.exec('raise SystemExit(1)') }}{% raw %}"
    job = {"framework": "standalone", "tasks": {"worker": {"command": command, "env": {"A": out, "B": "a.tony.yaml"}}}}
    text = DagFile("as_it_is", job, arguments={"proxy_user": out, "tony_conn_id": "a.tony.yaml"}, origin=out).text()
    (tmp_path / "as_it_is.py").write_text(text)
    assert formatted(tmp_path / "as_it_is.py") == ""
    task = rendered(parsed_dag(tmp_path, "as_it_is.py"))
    assert (task.job, task.proxy_user, task.tony_conn_id) == (job, out, "a.tony.yaml")


def test_a_job_file_reads_as_it_was(tmp_path: Path) -> None:
    job = {"framework": "standalone", "env": {"A": "on", "B": "010", "C": "null", "D": "~", "E": "1:30", "F": "x: y"}}
    job["tasks"] = {"worker": {"instances": 2, "command": "set -e\nrun  \n\tthis #\n"}}
    text = job_text(job, ["From here.", "- one thing: " + "word " * 40])
    assert max(map(len, text.splitlines())) <= 120
    assert parse_job(text) == parse_job(job)
    assert load_source(text)["env"] == job["env"]


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@given(_PLAIN)
def test_literals_are_the_values(value: Any) -> None:
    text = python_literal(value)
    assert eval(text) == value


@given(st.lists(st.text(max_size=40), max_size=4), st.lists(st.text(max_size=40), max_size=2))
def test_jobs_text_reads_as_it_was(values: list[str], comments: list[str]) -> None:
    job = {"framework": "x", "env": {f"A{n}": value for n, value in enumerate(values)}}
    assert load_source(job_text(job, comments)) == job


def test_relative_paths_lead_where_they_did(tmp_path: Path) -> None:
    before, after = tmp_path / "jobs" / "clicks", tmp_path / "dags"
    for each in (before, after):
        each.mkdir(parents=True)
    job = {
        "files": [
            "train.py",
            "/data/x",
            "hdfs:///y",
            "lib::code",
            {"source": "a.txt", "name": "b.txt"},
            "{{ params.x }}",
        ],
        "archives": ["env.zip"],
        "python_env": "env.tar.gz",
    }
    assert with_moved_paths(job, before, after) == {
        "files": [
            "../jobs/clicks/train.py",
            "/data/x",
            "hdfs:///y",
            "../jobs/clicks/lib::code",
            {"source": "../jobs/clicks/a.txt", "name": "b.txt"},
            "{{ params.x }}",
        ],
        "archives": ["../jobs/clicks/env.zip"],
        "python_env": "../jobs/clicks/env.tar.gz",
    }
    assert with_moved_paths(job, before, before) == job
    assert with_moved_paths({"python_env": "/opt/envs/tf"}, before, after) == {"python_env": "/opt/envs/tf"}


def test_a_link_keeps_its_name(tmp_path: Path) -> None:
    """By which a file lies in the working directory."""
    for each in ("jobs", "dags", "shared/train-2"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "jobs" / "src").symlink_to("../shared/train-2")
    (tmp_path / "linked").symlink_to("jobs")
    files = ["src", "src/train.py", "./../jobs/src"]
    for before in (tmp_path / "jobs", tmp_path / "linked"):
        found = with_moved_paths({"files": files}, before, tmp_path / "dags")["files"]
        assert found == ["../jobs/src", "../shared/train-2/train.py", "../jobs/src"]


def test_paths_of_task_types_wheels_and_registries_lead_where_they_did(tmp_path: Path) -> None:
    before, after = tmp_path / "jobs", tmp_path / "dags"
    for each in (before, after):
        each.mkdir()
    job = {
        "python_env": ["a.whl", "hdfs:///b.whl"],
        "docker": {"image": "i:1", "client_config": "config.json"},
        "tasks": {"one": {"files": ["own.txt::name"], "archives": ["x.zip"], "python_env": "tool.pex"}, "two": None},
    }
    assert with_moved_paths(job, before, after) == {
        "python_env": ["../jobs/a.whl", "hdfs:///b.whl"],
        "docker": {"image": "i:1", "client_config": "../jobs/config.json"},
        "tasks": {
            "one": {
                "files": ["../jobs/own.txt::name"],
                "archives": ["../jobs/x.zip"],
                "python_env": "../jobs/tool.pex",
            },
            "two": None,
        },
    }
    assert with_moved_paths({"python_env": "{{ f('a', 'b') }}"}, before, after) == {"python_env": "{{ f('a', 'b') }}"}
    assert with_moved_paths({"python_env": "a.whl,b.whl"}, before, after) == {
        "python_env": "../jobs/a.whl,../jobs/b.whl"
    }


@pytest.mark.parametrize(("name", "dag_id"), [("retrain clicks", "retrain_clicks"), ("été", "t"), ("***", "training")])
def test_ids_are_made_of_names(name: str, dag_id: str) -> None:
    assert dag_id_of(name) == dag_id

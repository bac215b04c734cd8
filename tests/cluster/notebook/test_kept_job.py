"""The job of an application that was submitted before, as its history keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.history.job_specification import JobSpecification, KeptResource
from tony_provider.cluster.notebook.kept_job import kept_job
from tony_provider.cluster.notebook.token_file import NotebookAccess, read_access, write_access
from tony_provider.runtime.codec import dump_json, to_plain
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.model import Resource
from tony_provider.runtime.storage import LocalStorage

JOB = parse_job(
    {
        "framework": "pytorch",
        "files": ["src", "hdfs:///words.txt"],
        "archives": ["data.zip"],
        "python_env": ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"],
        "env": {"MODE": "fast", "LOGIN": "me:***"},
        "tensorboard": True,
        "tasks": {
            "worker": {"command": "x", "files": ["own.py"], "python_env": "env.tar.gz"},
            "evaluator": {"command": "y"},
        },
    }
)
RESOURCES = [
    KeptResource(name="src/a.py", uri="hdfs:///cache/1/a.py", key="files.src"),
    KeptResource(name="src/b.py", uri="hdfs:///cache/2/b.py", key="files.src"),
    KeptResource(name="words.txt", uri="hdfs:///words.txt", key="files.words.txt"),
    KeptResource(name="data.zip", uri="hdfs:///cache/3/data.zip", key="archives.data.zip"),
    KeptResource(name="python_env/a-1-py3-none-any.whl", uri="hdfs:///cache/4/a-1-py3-none-any.whl", key="python_env"),
    KeptResource(name="python_env/b-1-py3-none-any.whl", uri="hdfs:///cache/5/b-1-py3-none-any.whl", key="python_env"),
    KeptResource(name="own.py", uri="hdfs:///cache/6/own.py", key="tasks.worker.files.own.py"),
    KeptResource(name="python_env", uri="hdfs:///cache/7/env.tar.gz", key="tasks.worker.python_env"),
]


def keep(folder: Path, specification: JobSpecification) -> str:
    LocalStorage().write(f"file://{folder}/history/specification.json", dump_json(specification))
    return f"file://{folder}"


def test_its_files_are_those_of_the_store(tmp_path: Path) -> None:
    kept = kept_job(LocalStorage(), keep(tmp_path, JobSpecification(job=to_plain(JOB), resources=RESOURCES)))
    job = parse_job(kept.job)
    assert job.files == [
        Resource("hdfs:///cache/1/a.py", "src/a.py"),
        Resource("hdfs:///cache/2/b.py", "src/b.py"),
        Resource("hdfs:///words.txt", "words.txt"),
    ]
    assert job.archives == [Resource("hdfs:///cache/3/data.zip", "data.zip")]
    assert job.python_env == "hdfs:///cache/4/a-1-py3-none-any.whl,hdfs:///cache/5/b-1-py3-none-any.whl"
    assert job.tasks["worker"].python_env == "hdfs:///cache/7/env.tar.gz"
    assert job.tasks["worker"].files == [Resource("hdfs:///cache/6/own.py", "own.py")]
    assert job.tasks["evaluator"].files == []


def test_values_that_were_masked_are_left_out_and_named(tmp_path: Path) -> None:
    kept = kept_job(LocalStorage(), keep(tmp_path, JobSpecification(job=to_plain(JOB), resources=RESOURCES)))
    assert (kept.masked, kept.job.env) == (["LOGIN"], {"MODE": "fast"})


def test_what_is_missing_is_told_with_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"what the application ran is not known .* give the job file, too"):
        kept_job(LocalStorage(), f"file://{tmp_path}")
    older = keep(tmp_path, JobSpecification(job=to_plain(JOB)))
    with pytest.raises(SourceMissing, match="does not say where the store keeps the job's files; give the job file"):
        kept_job(LocalStorage(), older)


def test_a_job_without_files_needs_none(tmp_path: Path) -> None:
    job = parse_job({"framework": "standalone", "python_env": "/opt/env", "tasks": {"worker": {"command": "x"}}})
    assert kept_job(LocalStorage(), keep(tmp_path, JobSpecification(job=to_plain(job)))).job == job


def test_the_token_is_its_owners_alone(tmp_path: Path) -> None:
    directory = f"file://{tmp_path}/application"
    assert read_access(LocalStorage(), directory) is None
    write_access(LocalStorage(), directory, NotebookAccess("open-sesame"))
    assert read_access(LocalStorage(), directory) == NotebookAccess("open-sesame")
    file = tmp_path / "application" / "launch" / "notebook.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "open-sesame" not in repr(NotebookAccess("open-sesame"))

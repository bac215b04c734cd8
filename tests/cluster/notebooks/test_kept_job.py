"""The job of an application that was submitted before, as its history keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cluster.errors import SourceMissing, Unconfirmed
from tony_provider.cluster.notebooks import KeptJob, NotebookAccess, read_access, write_access
from tony_provider.cluster.notebooks import kept_job as read_kept_job
from tony_provider.cluster.records.history import KeptResource, SpecificationRecord
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common.codec import dump_json, to_plain
from tony_provider.runtime.jobspec.model import Resource
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import LocalStorage, uris

LAYOUT = Layout("hdfs:///staging")


def cached(digit: int, name: str) -> str:
    return LAYOUT.cached(str(digit) * 64, name)


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
    KeptResource(name="src/a.py", uri=cached(1, "a.py"), key="files.src"),
    KeptResource(name="src/b.py", uri=cached(2, "b.py"), key="files.src"),
    KeptResource(name="words.txt", uri="hdfs:///words.txt", key="files.words.txt"),
    KeptResource(name="data.zip", uri=cached(3, "data.zip"), key="archives.data.zip"),
    KeptResource(name="python_env/a-1-py3-none-any.whl", uri=cached(4, "a-1-py3-none-any.whl"), key="python_env"),
    KeptResource(name="python_env/b-1-py3-none-any.whl", uri=cached(5, "b-1-py3-none-any.whl"), key="python_env"),
    KeptResource(name="own.py", uri=cached(6, "own.py"), key="tasks.worker.files.own.py"),
    KeptResource(name="python_env", uri=cached(7, "env.tar.gz"), key="tasks.worker.python_env"),
]


def keep(folder: Path, specification: SpecificationRecord) -> str:
    LocalStorage().write(f"file://{folder}/history/specification.json", dump_json(specification))
    return f"file://{folder}"


def kept_job(directory: str, *, confirmed: bool = False) -> KeptJob:
    return read_kept_job(LocalStorage(), directory, LAYOUT, confirmed=confirmed)


def test_its_files_are_those_of_the_store(tmp_path: Path) -> None:
    kept = kept_job(keep(tmp_path, SpecificationRecord(job=to_plain(JOB), resources=RESOURCES)), confirmed=True)
    job = parse_job(kept.job)
    assert job.files == [
        Resource(cached(1, "a.py"), "src/a.py"),
        Resource(cached(2, "b.py"), "src/b.py"),
        Resource("hdfs:///words.txt", "words.txt"),
    ]
    assert job.archives == [Resource(cached(3, "data.zip"), "data.zip")]
    assert job.python_env == f"{cached(4, 'a-1-py3-none-any.whl')},{cached(5, 'b-1-py3-none-any.whl')}"
    assert job.tasks["worker"].python_env == cached(7, "env.tar.gz")
    assert job.tasks["worker"].files == [Resource(cached(6, "own.py"), "own.py")]
    assert job.tasks["evaluator"].files == []


def test_values_that_were_masked_are_left_out_and_named(tmp_path: Path) -> None:
    kept = kept_job(keep(tmp_path, SpecificationRecord(job=to_plain(JOB), resources=RESOURCES)), confirmed=True)
    assert (kept.masked, kept.job.env) == (["LOGIN"], {"MODE": "fast"})


def test_what_is_missing_is_told_with_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"the application's job is unknown .* also pass the job file"):
        kept_job(f"file://{tmp_path}")
    older = keep(tmp_path, SpecificationRecord(job=to_plain(JOB)))
    with pytest.raises(SourceMissing, match="does not contain the URIs of the job's files on the store; also pass"):
        kept_job(older)


def test_a_job_without_files_needs_none(tmp_path: Path) -> None:
    job = parse_job({"framework": "standalone", "python_env": "/opt/env", "tasks": {"worker": {"command": "x"}}})
    assert kept_job(keep(tmp_path, SpecificationRecord(job=to_plain(job)))).job == job


def record(folder: Path, resources: list[KeptResource] | None = None, **job: Any) -> str:
    plain = {"framework": "standalone", "tasks": {"worker": {"command": "x"}}, **job}
    return keep(folder, SpecificationRecord(job=to_plain(parse_job(plain)), resources=resources or []))


def test_objects_outside_of_the_cache_are_listed_and_want_confirmation(tmp_path: Path) -> None:
    outside = [
        "hdfs:///data/words.txt",
        "hdfs:///staging/jobs/other/applications/application_1700000000000_0001/model",
        f"hdfs:///staging/cache/{'a' * 64}",
        f"hdfs://elsewhere/staging/cache/{'a' * 64}/words.txt",
        f"hdfs:///staging/cache/../cache/{'a' * 64}/words.txt",
        "s3://bucket/words.txt",
    ]
    resources = [KeptResource(name=f"f{index}", uri=each, key=f"files.f{index}") for index, each in enumerate(outside)]
    docker = {"image": "registry.example.com/x", "client_config": "hdfs:///user/alice/config.json"}
    directory = record(tmp_path, resources, docker=docker, inputs={"clicks": {"paths": ["hdfs:///clicks"]}})
    with pytest.raises(Unconfirmed, match="repeat the command with --yes") as caught:
        kept_job(directory)
    wanted = [
        *outside,
        "docker.client_config: hdfs:///user/alice/config.json",
        "inputs.clicks.paths[0]: hdfs:///clicks",
    ]
    assert [each for each in wanted if each not in str(caught.value)] == []
    assert len(kept_job(directory, confirmed=True).job.files) == len(outside)


@given(st.lists(st.sampled_from(["/", "..", ".", "cache", "environments", "a" * 64, "x", "%2e", "jobs"]), max_size=8))
def test_whatever_counts_as_cached_is_in_the_cache(parts: list[str]) -> None:
    uri = f"{LAYOUT.root}/{'/'.join(parts)}"
    if LAYOUT.is_cached(uri):
        assert str(uris.parse(uri)).startswith(f"{LAYOUT.cache_dir}/")


def test_a_built_environment_needs_no_confirmation(tmp_path: Path) -> None:
    uri = f"{LAYOUT.environments_dir}/{'b' * 64}/tony-env-cp311.tar.gz"
    directory = record(tmp_path, [KeptResource(name="python_env", uri=uri, key="python_env")], python_env=uri)
    assert kept_job(directory).job.python_env == uri


@pytest.mark.parametrize("source", ["/home/alice/.ssh/id_rsa", "file:///home/alice/.ssh/id_rsa", "id_rsa", "file:x"])
@pytest.mark.parametrize("key", ["files.x", "archives.x", "python_env"])
def test_files_of_this_machine_are_refused_also_when_confirmed(tmp_path: Path, source: str, key: str) -> None:
    uri = source if key == "files.x" else f"{source}.zip"
    directory = record(tmp_path, [KeptResource(name="x", uri=uri, key=key)])
    with pytest.raises(SourceMissing, match="names files on this machine, which are not used") as caught:
        kept_job(directory, confirmed=True)
    assert uri in str(caught.value)


def test_an_environment_of_this_machine_that_was_never_staged_is_refused(tmp_path: Path) -> None:
    directory = record(tmp_path, [KeptResource(name="y", uri=cached(1, "y"), key="files.y")], python_env="/x/own.pex")
    with pytest.raises(SourceMissing, match=r"python_env: /x/own\.pex"):
        kept_job(directory, confirmed=True)


def test_credentials_of_this_machine_are_left_out_and_named(tmp_path: Path) -> None:
    docker = {"image": "registry.example.com/x", "client_config": "/home/alice/.docker/config.json"}
    kept = kept_job(record(tmp_path, docker=docker))
    assert (kept.left_out, kept.job.docker and kept.job.docker.client_config) == (["docker.client_config"], None)


def test_the_token_is_its_owners_alone(tmp_path: Path) -> None:
    directory = f"file://{tmp_path}/application"
    assert read_access(LocalStorage(), directory) is None
    write_access(LocalStorage(), directory, NotebookAccess("open-sesame"))
    assert read_access(LocalStorage(), directory) == NotebookAccess("open-sesame")
    file = tmp_path / "application" / "launch" / "notebook.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "open-sesame" not in repr(NotebookAccess("open-sesame"))

"""``airflow tony notebook``: what is wrong with it is told before anything is started. What it does: tests/jobs."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tony
from tests.environments import pex
from tony_provider.cluster.records.history import KeptResource, SpecificationRecord
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.codec import dump_json, to_plain
from tony_provider.runtime.jobspec.container_content import named_resources
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import read_bytes, walk

JOB: dict[str, Any] = {
    "framework": "standalone",
    "name": "clicks",
    "secrets": ["KEY"],
    "tasks": {"worker": {"command": "true", "memory": "256MiB"}},
}


@pytest.fixture
def hook(local: TonyHook) -> TonyHook:
    return local


def assert_nothing_was_started(hook: TonyHook) -> None:
    assert hook.live() == []
    assert not hook.storage().exists(hook.layout.jobs_dir)


def write(folder: Path, **more: Any) -> str:
    file = folder / "clicks.tony.json"
    file.write_text(json.dumps({**JOB, **more}))
    return str(file)


def test_an_environment_without_a_kernel_is_refused_before_anything_is_started(
    tony: Tony, hook: TonyHook, tmp_path: Path
) -> None:
    said = tony("notebook", write(tmp_path, python_env=str(pex())))
    assert said.code == 1
    assert said.error.count("\n") <= 1
    assert "has no Jupyter server (jupyterlab); build an environment with `airflow tony env build`" in said.error
    assert_nothing_was_started(hook)


def record(hook: TonyHook, **job: Any) -> str:
    """Forge the history of an application that has ended; returns its id."""
    application_id = "application_1700000000000_0001"
    identity = hook.identity(dag_id="clicks", run_id="first", task_id="train")
    plain = to_plain(parse_job({**JOB, **job}))
    files = [
        KeptResource(name="x", uri=each.resource.source, key=each.key) for each in named_resources(parse_job(plain))
    ]
    uri = uris.join(hook.job(application_id, identity).directory, "history", "specification.json")
    hook.storage().write(uri, dump_json(SpecificationRecord(job=plain, resources=files)))
    return application_id


def staged(hook: TonyHook) -> list[bytes]:
    """The content of all files in the staging directory's cache."""
    if not hook.storage().exists(hook.layout.cache_dir):
        return []
    found = [each.path for each in walk(hook.storage(), hook.layout.cache_dir) if not each.is_directory]
    return [read_bytes(hook.storage(), each, length=1 << 16) for each in found]


@pytest.mark.parametrize("key", ["files", "archives", "python_env"])
def test_a_record_never_has_files_of_this_machine_read(tony: Tony, hook: TonyHook, tmp_path: Path, key: str) -> None:
    mine = tmp_path / "mine" / "id_rsa.zip"
    mine.parent.mkdir()
    mine.write_text("a private key")
    named = str(mine) if key == "python_env" else [str(mine)]
    said = tony("notebook", "--of", record(hook, **{key: named}), "--detach")
    for application in hook.live():
        hook.kill(application.id, "the test is over")
    assert b"a private key" not in staged(hook)
    assert (said.code, "names files on this machine, which are not used" in said.error) == (1, True)


def test_objects_of_a_record_want_confirmation(tony: Tony, hook: TonyHook) -> None:
    other = uris.join(hook.layout.root, "others", "words.txt")
    hook.storage().write(other, b"words")
    said = tony("notebook", "--of", record(hook, files=[other]), "--detach")
    assert (said.code, f"files[0]: {other}" in said.error, "--yes" in said.error) == (1, True, True)
    assert hook.live() == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a job, JOB.tony.yaml, or an application by --of"),
        (("--name", "mine"), "no notebook 'mine' is running: also name the job"),
        (("JOB", "--task", "ps"), "the job has no task type 'ps'; it has worker"),
        (("JOB", "--set", "tasks.notebook.memori=8GiB"), "unknown key; did you mean memory?"),
        (("JOB", "--set", "tasks.worker.memory=8GiB"), "tasks.worker"),
        (("JOB", "--secret", "NOT_THERE_4711"), "--secret: the environment has no variable NOT_THERE_4711"),
        (("JOB", "--idle", "soon"), "--idle: not a time"),
        (("JOB", "--lifetime", "1s"), "--lifetime: should be at least 1 min"),
        (("JOB", "--keep", "much"), "--keep: "),
        (("JOB", "--local-port", "70000"), "--local-port 70000 is not a port: use 1 to 65535"),
        (("--of", "application_1700000000000_0001"), "neither the cluster nor"),
        (("--dag-id", "d"), "name the job of a task by both --dag-id and --task-id"),
        (("--name", "mine", "--param", "a=1"), "name the file"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_started(
    tony: Tony, hook: TonyHook, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    file = write(tmp_path)
    said = tony("notebook", *(file if each == "JOB" else each for each in words))
    assert said.code == 1
    assert says in said.error
    assert_nothing_was_started(hook)


def test_a_local_port_that_somebody_has_is_told_before_anything_is_started(
    tony: Tony, hook: TonyHook, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = tony("notebook", write(tmp_path), "--local-port", str(port))
    assert (said.code, f"port {port} of this machine is not available" in said.error) == (1, True)
    assert_nothing_was_started(hook)

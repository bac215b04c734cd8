"""``airflow tony notebook``: what is wrong with it is told before anything is started. What it does: tests/jobs."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tony
from tests.environments import pex
from tony_provider.hooks.tony import TonyHook

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a job, JOB.tony.yaml, or an application by --of"),
        (("--name", "mine"), "there is no notebook 'mine' that runs: name the job, too"),
        (("JOB", "--task", "ps"), "the job has no task type 'ps'; it has worker"),
        (("JOB", "--set", "tasks.notebook.memori=8GiB"), "unknown key; did you mean memory?"),
        (("JOB", "--set", "tasks.worker.memory=8GiB"), "tasks.worker"),
        (("JOB", "--secret", "NOT_THERE_4711"), "--secret: the environment has no NOT_THERE_4711"),
        (("JOB", "--idle", "soon"), "--idle: not a time"),
        (("JOB", "--lifetime", "1s"), "--lifetime: at least 1 min"),
        (("JOB", "--keep", "much"), "--keep: "),
        (("JOB", "--local-port", "70000"), "--local-port 70000 is no port: from 1 to 65535"),
        (("--of", "application_1700000000000_0001"), "neither the cluster nor"),
        (("--dag-id", "d"), "name a training by all of --dag-id, --task-id and --run-id"),
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
    assert (said.code, f"port {port} of this machine cannot be had" in said.error) == (1, True)
    assert_nothing_was_started(hook)

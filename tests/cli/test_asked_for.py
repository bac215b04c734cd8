"""``airflow tony check`` says of each key whose word it is, and what the connection does not allow."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tony
from tony_provider.hooks.tony import TonyHook

JOB = """
framework: standalone
preset: small
tasks:
  worker: {memory: 2GiB, command: "echo hello"}
inputs: {}
"""
SMALL = {"env": {"A": "1"}, "tasks": {"worker": {"memory": "1GiB", "vcores": 2, "instances": 3}}}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "greet.tony.yaml"
    path.write_text(JOB)
    return str(path)


def says(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["extra"].update({"local_memory": 16384, "presets": {"small": SMALL}, **extra})
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))


def whose(text: str) -> dict[str, tuple[str, str]]:
    """Value and origin of each key."""
    return {key: (value, origin) for key, value, origin in re.findall(r"^  (\S+) +(.*?)  \((.*)\)$", text, re.M)}


def test_whose_word_each_key_is(tony: Tony, local: TonyHook, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    says(monkeypatch, log_size="8MiB", max_lifetime="1d")
    said = tony("check", file, "--set", "tasks.worker.instances=2", "--queue", "ml")
    assert said.code == 0, said.error
    assert whose(said.out) == {
        "framework": ('"standalone"', "the job"),
        "preset": ('"small"', "the job"),
        "tasks.worker.command": ('"echo hello"', "the job"),
        "tasks.worker.memory": ("2048", "the job"),
        "tasks.worker.vcores": ("2", "preset small"),
        "tasks.worker.instances": ("2", "overrides"),
        "env.A": ('"1"', "preset small"),
        "queue": ('"ml"', "arguments"),
        "logs.max_size": ("8", "connection tony_default"),
        "timeouts.lifetime": ("86400.0", "connection tony_default"),
        "inputs": ("{}", "the job"),
    }
    explained = whose(tony("check", file, "--explain").out)
    assert explained["tasks.worker.gpus"] == ("0", "default")
    assert explained["name"] == ('"greet"', "default")
    assert explained["tasks.worker.instances"] == ("3", "preset small")


def test_what_the_connection_does_not_allow(
    tony: Tony, local: TonyHook, monkeypatch: pytest.MonkeyPatch, file: str, tmp_path: Path
) -> None:
    says(monkeypatch, max_tasks=2, file_roots="/opt/dags", allowed_overrides="priority", proxy_users="none")
    (tmp_path / "data").write_text("x")
    with Path(file).open("a") as job:
        job.write("files: [data]\n")
    said = tony("check", file, "--set", "tags=x")
    assert "tags: must be a list" in said.error
    said = tony("check", file, "--set", "name=x", "--set", "priority=1")
    assert said.code == 1
    for words in (
        "- name: the override",
        "- tasks: 3 is more",
        f"- files[0]: {tmp_path}/data is not allowed by the connection",
    ):
        assert words in said.error
    assert "- priority" not in said.error
    for command in (["check", file], ["list"]):
        assert "proxy_user: bob is not allowed by the connection" in tony(*command, "--proxy-user", "bob").error


def test_by_default_files_are_those_of_the_command_line(
    tony: Tony, local: TonyHook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The directory of the job's file, the current one, and what was typed; not what the file alone names."""
    says(monkeypatch, file_roots=None)
    for name in ("jobs", "here", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text(name)
    monkeypatch.chdir(tmp_path / "here")
    parameters = "parameters: {where: {type: string}}\n"
    job = tmp_path / "jobs" / "greet.tony.yaml"
    for source in ("data", f"{tmp_path}/here/data"):
        job.write_text(f"{JOB}files: ['{source}::x']\n")
        assert tony("check", str(job)).code == 0
    job.write_text(f"{JOB}files: ['{tmp_path}/elsewhere/data::x']\n")
    said = tony("check", str(job))
    assert said.code == 1
    assert f"- files[0]: {tmp_path}/elsewhere/data lies outside the directories whose files this job" in said.error
    assert "`file_roots`" in said.error
    submitted = tony("submit", str(job))
    assert "lies outside the directories" in submitted.error
    job.write_text(f"{parameters}{JOB}files: ['{{{{ params.where }}}}::x']\n")
    assert tony("check", str(job), "--param", f"where={tmp_path}/elsewhere/data").code == 0
    assert tony("check", str(job), "--param", "where=../elsewhere/data").code == 1

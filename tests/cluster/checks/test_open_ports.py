"""The warning of ports that strangers could use: for whom it is, what it says, what ends it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tony_provider.cluster.checks.job_checks import warn_of_open_ports
from tony_provider.runtime.frameworks import get_framework, names
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job

ROLES = {"ray": "chief", "mpi": "chief", "mxnet": "ps"}  # that a framework does not do without


def job(framework: str, workers: int = 2, **more: Any) -> JobSpec:
    tasks: dict[str, Any] = {"worker": {"instances": workers, "command": "true"}}
    if framework in ROLES:
        tasks[ROLES[framework]] = {"command": "true"}
    return parse_job({"framework": framework, "tasks": tasks, **more})


def told(caplog: pytest.LogCaptureFixture, job: JobSpec) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_open_ports(job)
    return [record.getMessage() for record in caplog.records]


def test_one_line_says_what_is_open_where_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = told(caplog, job("tensorflow", port_range="21000-21999"))
    assert "\n" not in line
    for part in (
        "read and write every file",
        "ports 21000 to 21999",
        "network: isolated",
        "trusted",
        "docs/security.md",
    ):
        assert part in line


@pytest.mark.parametrize("framework", names())
def test_every_framework_with_servers_of_its_own_is_told(framework: str, caplog: pytest.LogCaptureFixture) -> None:
    has_servers = framework not in ("generic", "standalone")
    assert bool(get_framework(framework).exposed) == has_servers
    assert len(told(caplog, job(framework))) == int(has_servers)


@pytest.mark.parametrize("word", ["trusted", "isolated"])
def test_whoever_has_looked_is_not_told(word: str, caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, job("tensorflow", network=word)) == []


def test_a_process_that_is_alone_serves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, job("pytorch", workers=1)) == []
    several = {"worker": {"command": "true", "processes": 2}}
    assert len(told(caplog, parse_job({"framework": "pytorch", "tasks": several}))) == 1


def test_another_word_is_refused() -> None:
    with pytest.raises(SpecError, match="network: must be one of trusted, isolated"):
        job("pytorch", network="private")

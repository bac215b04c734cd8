"""The warning of ports that strangers could use: for whom it is, what it says, what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.cluster.checks.job_checks import open_ports
from tony_provider.cluster.findings import Severity
from tony_provider.runtime.frameworks.base import framework_names, get_framework
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job

ROLES = {"ray": "chief", "mpi": "chief", "mxnet": "ps"}  # that a framework does not do without


def job(framework: str, workers: int = 2, **more: Any) -> JobSpec:
    tasks: dict[str, Any] = {"worker": {"instances": workers, "command": "true"}}
    if framework in ROLES:
        tasks[ROLES[framework]] = {"command": "true"}
    return parse_job({"framework": framework, "tasks": tasks, **more})


def told(job: JobSpec) -> list[str]:
    found = list(open_ports(job))
    assert all(each.outcome is Severity.WARNING for each in found)
    return [each.detail for each in found]


def test_one_line_says_what_is_open_where_and_what_to_do() -> None:
    (line,) = told(job("tensorflow", port_range="21000-21999"))
    assert "\n" not in line
    assert len(line) < 400
    for part in (
        "read and write every file",
        "ports 21000 to 21999",
        "Set `network` to `isolated`",
        "trusted",
        'the guide "Secure jobs on a shared cluster"',
    ):
        assert part in line


@pytest.mark.parametrize("framework", framework_names())
def test_every_framework_with_servers_of_its_own_is_told(framework: str) -> None:
    has_servers = framework not in ("generic", "standalone")
    assert bool(get_framework(framework).exposed) == has_servers
    assert len(told(job(framework))) == int(has_servers)


@pytest.mark.parametrize("word", ["trusted", "isolated"])
def test_whoever_has_looked_is_not_told(word: str) -> None:
    assert told(job("tensorflow", network=word)) == []


def test_a_process_that_is_alone_serves_nobody() -> None:
    assert told(job("pytorch", workers=1)) == []
    several = {"worker": {"command": "true", "processes": 2}}
    assert len(told(parse_job({"framework": "pytorch", "tasks": several}))) == 1


def test_another_word_is_refused() -> None:
    with pytest.raises(SpecError, match="network: must be one of trusted, isolated"):
        job("pytorch", network="private")

"""All problems of a job together, as a submission and ``airflow tony check`` find them, on a local cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tony_provider.cluster.checks.job_checks import CLUSTER, POLICY, JobChecks
from tony_provider.cluster.errors import JobNotAllowed, JobRejected, SourceMissing
from tony_provider.cluster.findings import Severity
from tony_provider.cluster.open_cluster import open_cluster
from tony_provider.cluster.settings import Backend, FileRoots, LocalSettings, Policy, Settings
from tony_provider.runtime.parsing.parse import parse_job

SMALL = {"tasks": {"worker": {"command": "true", "memory": "1GiB"}}}
LARGE = {"tasks": {"worker": {"command": "true", "memory": "64GiB"}}}


def checks(
    tmp_path: Path,
    job: Mapping[str, Any],
    *,
    policy: Policy | None = None,
    secrets: Mapping[str, str] | None = None,
) -> JobChecks:
    staging = tmp_path / "tony"
    local = LocalSettings(staging / "cluster", memory=4096, vcores=8)
    settings = Settings(None, staging_dir=str(staging), local=local, policy=policy or Policy("here"))
    parsed = parse_job({"framework": "standalone", **job})
    return JobChecks(open_cluster(settings), parsed, [tmp_path], FileRoots("here", [tmp_path]), secrets=secrets)


def test_problems_of_several_kinds_are_raised_together(tmp_path: Path) -> None:
    job = {**LARGE, "files": ["gone.py"], "secrets": ["KEY"], "inputs": {"data": f"{tmp_path}/nothing/*"}}
    with pytest.raises(JobRejected) as raised:
        checks(tmp_path, job, secrets={}).expect_none()
    assert type(raised.value) is JobRejected
    told = [problem.split(":")[0] for problem in raised.value.problems]
    assert told == ["secrets", "files[0]", "memory", "inputs.data.paths[0]"]


def test_without_the_values_of_secrets_these_are_not_checked(tmp_path: Path) -> None:
    checks(tmp_path, {**SMALL, "secrets": ["KEY"]}).expect_none()


def test_a_missing_file_alone_is_a_missing_source(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"files\[0\]: 'gone.py' does not exist"):
        checks(tmp_path, {**SMALL, "files": ["gone.py"]}).expect_none()


def test_the_cluster_is_not_asked_about_a_job_that_the_connection_does_not_allow(tmp_path: Path) -> None:
    job = checks(tmp_path, {**LARGE, "priority": 3, "files": ["gone.py"]}, policy=Policy("here", max_priority=1))
    found = {each.what: each for each in job.run()}
    assert found[CLUSTER].outcome is Severity.SKIPPED
    assert found[CLUSTER].detail == "the connection does not allow the job"
    with pytest.raises(JobNotAllowed, match="max_priority: 1") as raised:
        job.expect_none()
    assert len(raised.value.problems) == 1, "a file that is not looked for is not missing"


def test_only_some_checks_may_be_run(tmp_path: Path) -> None:
    with pytest.raises(JobRejected, match="memory: tasks that run together need"):
        checks(tmp_path, {**LARGE, "files": ["gone.py"]}).expect_none(POLICY, CLUSTER)
    checks(tmp_path, {**SMALL, "files": ["gone.py"]}).expect_none(POLICY, CLUSTER)


def test_warnings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on YARN, which this check does not ask."""
    monkeypatch.setattr(Settings, "backend", Backend.YARN)
    tasks = {"worker": {"command": "true", "instances": 2, "memory": "512MiB"}}
    with caplog.at_level(logging.INFO):
        checks(tmp_path, {"framework": "pytorch", "tasks": tasks}).expect_none("Open ports")
    [record] = [each for each in caplog.records if each.name.endswith("job_checks")]
    assert record.levelno == logging.WARNING
    assert "PyTorch accepts any client" in record.getMessage()


def test_ports_on_the_airflow_worker_are_no_warning(tmp_path: Path) -> None:
    """The local backend is for trying a job."""
    tasks = {"worker": {"command": "true", "instances": 2, "memory": "512MiB"}}
    assert checks(tmp_path, {"framework": "pytorch", "tasks": tasks}).run("Open ports") == []

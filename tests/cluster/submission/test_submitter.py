from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import attrs
import pytest

from tony_provider.cluster.checks.job_checks import hadoop_problems, secret_problems
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.settings import Settings, YarnSettings
from tony_provider.cluster.submission.preparation import PreparedSubmission
from tony_provider.cluster.submission.submitter import SubmissionAttempt
from tony_provider.runtime.jobspec.model import HadoopSpec, JobSpec, TaskSpec
from tony_provider.runtime.protocol.store_tokens import StoreToken
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig


def test_a_delegation_token_is_in_no_log() -> None:
    prepared = cast(PreparedSubmission, None)  # is not asked
    attempt = SubmissionAttempt(prepared, "application_1_0001", token=StoreToken("open-sesame", 0))
    assert "open-sesame" not in repr(attempt)
    assert "application_1_0001" in repr(attempt)


@pytest.mark.parametrize("value", ["open\0sesame", "open\ud800sesame", "open sesame" * 20_000])
def test_a_secret_that_no_environment_can_hold_is_named_and_not_shown(value: str) -> None:
    job = JobSpec(framework="standalone", tasks={"worker": TaskSpec("true")}, secrets=["KEY"])
    (problem,) = secret_problems(job, {"KEY": value})
    assert "KEY" in problem
    assert "sesame" not in problem
    assert secret_problems(job, {"KEY": "open sesame"}) == []


@pytest.mark.parametrize("kerberos", [True, False])
def test_tokens_that_cannot_be_had_are_a_problem_where_kerberos_asks_for_them(kerberos: bool) -> None:
    yarn = YarnSettings(["http://rm:8088"], WebHdfsConfig(["http://nn:9870"]), kerberos=kerberos)
    opened = cast(
        OpenCluster, SimpleNamespace(settings=Settings(None, yarn=yarn), staging_dir="s3://b/tony", tokens=None)
    )
    job = JobSpec(framework="standalone", tasks={"worker": TaskSpec("true")}, hadoop=HadoopSpec())
    found = hadoop_problems(job, opened)
    assert [problem.partition(":")[0] for problem in found] == ["hadoop"] * kerberos
    assert all("s3://b/tony is not on HDFS" in problem for problem in found)
    assert hadoop_problems(attrs.evolve(job, hadoop=None), opened) == []

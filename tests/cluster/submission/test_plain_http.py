"""What is refused over plain http on clusters with Kerberos."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tony_provider.cluster.checks.daemons import check_encryption
from tony_provider.cluster.checks.job_checks import refuse_plain_http
from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.findings import Severity
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.settings import Settings, YarnSettings
from tony_provider.cluster.submission.submitter import submit
from tony_provider.cluster.token_refresh import refresh_store_tokens
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

RM, NN = "http://rm:8088", "http://nn:9870"


def yarn(manager: str = RM, namenode: str = NN, *, kerberos: bool = True, insecure_http: bool = False) -> YarnSettings:
    return YarnSettings([manager], WebHdfsConfig([namenode]), kerberos, insecure_http=insecure_http)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (yarn(), "http://rm:8088, http://nn:9870: plain http with Kerberos"),
        (yarn("https://rm:8090"), "http://nn:9870: plain http with Kerberos"),
        (yarn(namenode="https://nn:9871"), "http://rm:8088: plain http with Kerberos"),
    ],
)
def test_each_address_is_named_and_what_to_do(settings: YarnSettings, named: str) -> None:
    with pytest.raises(ConnectionProblem) as raised:
        refuse_plain_http(Settings("alice", yarn=settings))
    assert str(raised.value).startswith(named)
    assert "set `insecure_http` to true in the tony connection" in str(raised.value)
    [finding] = check_encryption(settings)
    assert (finding.outcome, finding.detail[: len(named)]) == (Severity.PROBLEM, named)
    [finding] = check_encryption(attrs.evolve(settings, insecure_http=True))
    assert finding.outcome is Severity.WARNING
    assert "jobs' keys, secrets and HDFS tokens are sent to http://" in str(finding)


@pytest.mark.parametrize(
    "settings", [yarn("https://rm:8090", "https://nn:9871"), yarn(kerberos=False), yarn(insecure_http=True), None]
)
def test_what_is_allowed(settings: YarnSettings | None) -> None:
    refuse_plain_http(Settings("alice", yarn=settings))


def test_the_doctor_finds_nothing_over_https_or_without_kerberos() -> None:
    assert list(check_encryption(yarn("https://rm:8090", "https://nn:9871"))) == []
    assert list(check_encryption(yarn(kerberos=False))) == []


def test_neither_submission_nor_renewal_gets_further() -> None:
    """Nothing of the cluster or the store is asked: there is none here."""
    nobody: Any = object()
    opened = OpenCluster(Settings("alice", yarn=yarn()), nobody, nobody, "hdfs://nn/tony", None, nobody)
    with pytest.raises(ConnectionProblem, match="plain http with Kerberos"):
        submit(opened, nobody, mask=nobody)
    with pytest.raises(ConnectionProblem, match="plain http with Kerberos"):
        refresh_store_tokens(opened, "hdfs://nn/tony/1", "application_1_0001")

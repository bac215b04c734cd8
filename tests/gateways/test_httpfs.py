"""Jobs whose Airflow side reads and writes HDFS through a real HttpFS."""

from __future__ import annotations

import pytest

from tests.gateways.places import HttpFsPlace, train_kill_and_resume
from tests.hadoop.cluster import HadoopCluster
from tests.hooks.test_secure_yarn import become


def test_a_job_through_httpfs(hadoop: HadoopCluster) -> None:
    place = HttpFsPlace(cluster=hadoop)
    train_kill_and_resume(place)
    place.close()


@pytest.mark.long
def test_a_job_through_httpfs_with_kerberos(secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    place = HttpFsPlace(cluster=secure_hadoop)
    train_kill_and_resume(place)
    place.close()


@pytest.mark.long
@pytest.mark.parametrize("is_secure", [False, True])
def test_the_doctor_finds_nothing_wrong_with_httpfs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, *, is_secure: bool
) -> None:
    hadoop: HadoopCluster = request.getfixturevalue("secure_hadoop" if is_secure else "hadoop")
    if is_secure:
        become(monkeypatch, hadoop, "alice")
    assert list(map(str, HttpFsPlace(cluster=hadoop).hook().diagnose().problems)) == []

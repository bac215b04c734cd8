"""Jobs whose Airflow side reaches YARN and HDFS through a real Knox only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateways.knox import Knox
from tests.gateways.places import KnoxPlace, train_kill_and_resume
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER
from tony_provider.cluster.errors import ClusterAuthError, ConnectionProblem

pytestmark = pytest.mark.long


@pytest.mark.parametrize("topology", ["basic", "bearer", "cookie"])
def test_a_job_through_knox(hadoop: HadoopCluster, gateway: Knox, topology: str) -> None:
    place = KnoxPlace(cluster=hadoop, gateway=gateway, topology=topology)
    train_kill_and_resume(place)
    place.close()


def test_a_job_through_knox_with_kerberos_and_without_a_ticket(
    secure_hadoop: HadoopCluster, secure_gateway: Knox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    place = KnoxPlace(cluster=secure_hadoop, gateway=secure_gateway, topology="basic")
    train_kill_and_resume(place)
    place.close()


@pytest.mark.parametrize(
    ("topology", "secret", "said"),
    [
        ("basic", "another-password", "the gateway refuses the login"),
        ("bearer", "no-token", "the gateway refuses the login"),
        ("cookie", "no-token", "the gateway redirects to https://login.example.com/knoxsso"),
    ],
)
def test_wrong_credentials(hadoop: HadoopCluster, gateway: Knox, topology: str, secret: str, said: str) -> None:
    place = KnoxPlace(cluster=hadoop, gateway=gateway, topology=topology, secret=secret)
    with pytest.raises(ClusterAuthError, match=f"{said}.*; check `gateway`"):
        place.hook().live()
    problems = place.hook().diagnose().problems
    assert [each.what.partition(" ")[0] for each in problems[:2]] == ["ResourceManager", "NameNode"]
    assert all(said in each.detail for each in problems[:2])


@pytest.mark.parametrize("is_secure", [False, True])
def test_the_doctor_finds_nothing_wrong_with_knox(request: pytest.FixtureRequest, *, is_secure: bool) -> None:
    prefix = "secure_" if is_secure else ""
    hadoop, gateway = (request.getfixturevalue(f"{prefix}{name}") for name in ("hadoop", "gateway"))
    place = KnoxPlace(cluster=hadoop, gateway=gateway)
    assert list(map(str, place.hook().diagnose().problems)) == []


def test_an_expired_token(hadoop: HadoopCluster, gateway: Knox) -> None:
    token = gateway.token(USER, -60)
    place = KnoxPlace(cluster=hadoop, gateway=gateway, topology="bearer", secret=token)
    with pytest.raises(ConnectionProblem, match="the token in the password field expired at"):
        place.hook().live()

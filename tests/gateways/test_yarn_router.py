"""Jobs in the sub-cluster of a YARN federation, whose Router is no address for a connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.gateways.places import train_kill_and_resume
from tests.gateways.yarn_router import federated, yarn_router
from tests.gateways.zookeeper import zookeeper
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.fixtures import StartHadoop
from tests.jobs.places import YarnPlace
from tony_provider.cluster.errors import UnexpectedAnswer

pytestmark = pytest.mark.long


@dataclass(kw_only=True)
class AtRouter(YarnPlace):
    """A connection that names the Router in place of a ResourceManager."""

    address: str

    @property
    def connection(self) -> dict[str, Any]:
        return {**super().connection, "host": self.address}


@pytest.fixture(scope="module")
def sub_cluster(start_hadoop: StartHadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    """At the first start, ResourceManager and AMRMProxy create the same nodes in ZooKeeper, and one may fail."""
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        try:
            cluster = start_hadoop(federated(address))
        except ClusterError:
            cluster = start_hadoop(federated(address))
        yield cluster
        cluster.stop()


def test_a_job_through_the_proxy_of_its_sub_cluster(sub_cluster: HadoopCluster) -> None:
    """Its nodes intercept the requests of masters that the Router has submitted; this one reaches its scheduler."""
    place = YarnPlace(cluster=sub_cluster)
    train_kill_and_resume(place)
    report = place.hook().diagnose()
    assert list(map(str, report.problems)) == []
    assert "Federation: jobs use only the sub-cluster tony-test." in str(report)
    place.close()


def test_a_router_is_refused_before_the_submission(sub_cluster: HadoopCluster) -> None:
    with yarn_router(sub_cluster) as address:
        place = AtRouter(cluster=sub_cluster, address=address)
        with pytest.raises(UnexpectedAnswer, match=r" is a YARN Router, .*; name the ResourceManagers of one sub-"):
            place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "true"}}})
        problem, *_ = place.hook().diagnose().problems
        assert problem.detail.startswith("this is a YARN Router, not the ResourceManager of a sub-cluster")
        place.close()

"""The cluster that a benchmark runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import ATTACH
from tests.hadoop.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[1]
# Room for a job of 32 tasks; and NodeManagers are heard of once a second, which is Hadoop's default, where tests have
# them heard of four times as often: most of a start is waiting for that.
SETTINGS = Settings(
    nodemanagers=2,
    node_vcores=40,
    properties={"yarn-site": {"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "1000"}},
)


@contextmanager
def cluster(name: str, settings: Settings = SETTINGS) -> Iterator[HadoopCluster]:
    """Provide the cluster that $TONY_TEST_HADOOP_ROOT names and leave it running, or start a new cluster.

    With other settings than SETTINGS, the cluster is always new. Raises ClusterError, ResolveError.
    """
    attached = os.environ.get(ATTACH)
    if attached and settings == SETTINGS:
        yield HadoopCluster.load(Path(attached))
        return
    ours = HadoopCluster(REPOSITORY / ".tony" / f"bench-{name}", settings)
    ours.start()
    try:
        yield ours
    finally:
        ours.stop()

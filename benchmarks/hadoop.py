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


@contextmanager
def cluster(name: str) -> Iterator[HadoopCluster]:
    """The one that $TONY_TEST_HADOOP_ROOT names, which is left alone; else a new one for this benchmark.

    Raises ClusterError, ResolveError.
    """
    attached = os.environ.get(ATTACH)
    if attached:
        yield HadoopCluster.load(Path(attached))
        return
    ours = HadoopCluster(REPOSITORY / ".tony" / f"bench-{name}", Settings(nodemanagers=1))
    ours.start()
    try:
        yield ours
    finally:
        ours.stop()

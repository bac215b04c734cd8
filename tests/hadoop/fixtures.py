"""pytest fixtures: clusters that live as long as the test session.

Use by `pytest_plugins = ["tests.hadoop.fixtures"]` in the top conftest.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.processes import Process
from tests.hadoop.settings import Settings

# A cluster that runs already, for quick development: `eval "$(python -m tests.hadoop env)"`.
ATTACH = "TONY_TEST_HADOOP_ROOT"
ATTACH_SECURE = "TONY_TEST_SECURE_HADOOP_ROOT"

StartHadoop = Callable[[Settings], HadoopCluster]


@pytest.fixture(scope="session")
def hadoop(start_hadoop: StartHadoop) -> HadoopCluster:
    """The simple cluster that all tests share: leave its daemons alone, and clean up what you make."""
    return _running(ATTACH) or start_hadoop(Settings(httpfs=True))


@pytest.fixture(scope="session")
def secure_hadoop(start_hadoop: StartHadoop) -> HadoopCluster:
    """The Kerberos cluster that all tests share, with RPC encrypted, https only, and a pair of NameNodes."""
    return _running(ATTACH_SECURE) or start_hadoop(
        Settings(secure=True, https=True, masters_https="STRICT", rpc_protection="privacy", namenodes=2, httpfs=True)
    )


@pytest.fixture(scope="session")
def start_hadoop(request: pytest.FixtureRequest) -> Iterator[StartHadoop]:
    """Starts clusters of the caller's own, to break; each is stopped at the end of the session, if not before.

    Their logs stay in .tony/ until the next session when a test has failed.
    """
    if request.config.getoption("no_daemons", False):
        pytest.skip("started without daemons")
    folder = request.config.rootpath / ".tony"
    _clear_abandoned(folder)
    started: list[HadoopCluster] = []

    def start(settings: Settings) -> HadoopCluster:
        root = folder / f"test-hadoop-{os.getpid()}-{len(started)}"
        cluster = HadoopCluster(root, settings, owner=Process.of(os.getpid()))
        started.append(cluster)
        try:
            cluster.start()
        except ClusterError as error:
            pytest.fail(str(error), pytrace=False)
        return cluster

    yield start
    for cluster in started:
        if cluster.root.exists():
            cluster.stop(keep=bool(request.session.testsfailed))


def _running(variable: str) -> HadoopCluster | None:
    """The cluster that this environment variable names, if it is set."""
    root = os.environ.get(variable)
    if not root:
        return None
    cluster = HadoopCluster.load(Path(root))
    if not cluster.running():
        pytest.fail(f"{variable}={root}: not all daemons of that cluster run", pytrace=False)
    return cluster


def _clear_abandoned(folder: Path) -> None:
    """Stop and remove the clusters of test sessions that were killed, or that left their logs."""
    for path in folder.glob("test-hadoop-*/cluster.json"):
        try:
            cluster = HadoopCluster.load(path.parent)
        except ClusterError:
            # Another session has just removed it.
            continue
        if cluster.owner is not None and not cluster.owner.alive():
            with suppress(FileNotFoundError):  # workers of one session do this at the same time
                cluster.stop()

"""A cluster with room for several nodes' worth of frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.conftest import yarn
from tests.jobs.places import YarnPlace
from tests.kinds.environments import has_mpi, has_torch
from tests.kinds.pace import Pace
from tests.kinds.table import note, pytest_terminal_summary

__all__ = ["note", "pytest_terminal_summary", "three_nodes", "wide", "yarn"]


@pytest.fixture(scope="session")
def three_nodes(start_hadoop: StartHadoop) -> HadoopCluster:
    return start_hadoop(Settings(nodemanagers=3, node_vcores=8))


@pytest.fixture
def wide(three_nodes: HadoopCluster) -> Iterator[YarnPlace]:
    """A cluster of three nodes, as an ordinary user."""
    place = YarnPlace(cluster=three_nodes)
    yield place
    place.close()


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    """Half a second for each step, until the test wants it otherwise."""
    return Pace(tmp_path / "pace", 0.5)


@pytest.fixture
def torch() -> None:
    """Debian's PyTorch. Looked for when it is needed: to import it takes seconds."""
    if not has_torch():
        pytest.skip("needs Debian's python3-torch: sh tests/packages.sh torch")


@pytest.fixture
def mpi() -> None:
    """Debian's Open MPI with mpi4py, and MPICH."""
    if not has_mpi():
        pytest.skip("needs Debian's openmpi-bin, python3-mpi4py and mpich: sh tests/packages.sh kinds")

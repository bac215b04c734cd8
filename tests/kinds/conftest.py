"""A cluster with room for several nodes' worth of frameworks, and the table of what was seen on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.conftest import yarn
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.kinds.environments import has_mpi, has_torch
from tests.kinds.pace import Pace

__all__ = ["three_nodes", "wide", "yarn"]

Note = Callable[..., None]
_HEADER = ("kind", "version", "containers", "nodes", "what was killed", "result")
_rows: list[tuple[str, ...]] = []


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


@pytest.fixture
def note() -> Note:
    """Call it with what is to stand in the table."""

    def add(kind: str, job: Job, result: str, killed: str = "nothing") -> None:
        tasks = job.status().tasks
        left = json.loads(job.read("return_value.json")) if "return_value.json" in job.files() else {}
        version = left.get("version", "")
        _rows.append((kind, version, str(len(tasks)), str(len({task.node for task in tasks})), killed, result))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _rows:
        return
    rows = [_HEADER, *_rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    terminalreporter.section("kinds of jobs")
    for row in rows:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

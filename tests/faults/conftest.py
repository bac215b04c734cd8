from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.field import SETTINGS, Field
from tests.faults.row import COUNT
from tests.faults.weights import References
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop

NewField = Callable[[HadoopCluster], Field]


@pytest.fixture(scope="package")
def breakable(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """The cluster of `make faults`, whose daemons a row may kill: it mends them."""
    cluster = start_hadoop(SETTINGS)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    return References(tmp_path_factory.mktemp("references"))


@pytest.fixture
def new_field(tmp_path: Path, references: References) -> Iterator[NewField]:
    """Makes the field of one row, with the program that is quick to start."""
    fields: list[Field] = []

    def new(hadoop: HadoopCluster) -> Field:
        fields.append(Field(hadoop, tmp_path / "row", references, COUNT))
        return fields[-1]

    yield new
    for field in fields:
        field.mend()

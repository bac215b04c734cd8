from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.node_view import lacks_rights
from tests.jobs.places import USER
from tests.permissions import open_to_all
from tests.secure.field import CLUSTERS, Field
from tests.secure.row import SHARED
from tests.secure.standing import Standing

NewField = Callable[[HadoopCluster], Field]


@pytest.fixture(scope="module")
def standing() -> Standing:
    """alice's job that the rows of the file attack, once one of them has started it."""
    return Standing()


@pytest.fixture(scope="package")
def user_containers(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """The cluster of `make secure`, whose containers run as their users."""
    if reason := lacks_rights():
        pytest.skip(reason)
    cluster = start_hadoop(CLUSTERS[SHARED])
    yield cluster
    cluster.stop()


@pytest.fixture
def new_field(tmp_path: Path, standing: Standing, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewField]:
    """Makes the field of one row."""
    open_to_all(tmp_path)
    fields: list[Field] = []

    def new(hadoop: HadoopCluster) -> Field:
        for name in hadoop.layout.kerberos_environment(USER):
            if name.startswith("KRB5"):
                monkeypatch.setenv(name, "")  # rows set them, and pytest has them back afterwards
        fields.append(Field(hadoop, tmp_path / "row", standing))
        return fields[-1]

    yield new
    for field in fields:
        field.mend()

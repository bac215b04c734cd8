from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.node_view import lacks_rights
from tests.jobs.places import USER
from tests.secure.field import SETTINGS, Field
from tests.secure.victim import Victim

NewField = Callable[[HadoopCluster], Field]


@pytest.fixture(scope="module")
def standing() -> list[Victim]:
    """alice's job that the rows of the file attack, once one of them has started it."""
    return []


@pytest.fixture(scope="package")
def user_containers(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """The cluster of `make secure`, whose containers run as their users."""
    if reason := lacks_rights():
        pytest.skip(reason)
    cluster = start_hadoop(SETTINGS)
    yield cluster
    cluster.stop()


@pytest.fixture
def new_field(tmp_path: Path, standing: list[Victim], monkeypatch: pytest.MonkeyPatch) -> Iterator[NewField]:
    """Makes the field of one row."""
    for each in (tmp_path, *list(tmp_path.parents)[:2]):
        each.chmod(0o755)  # containers of other users look into it
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

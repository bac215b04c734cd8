from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER, LocalPlace, Place, YarnPlace
from tests.kinds.table import note

__all__ = ["note"]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalPlace]:
    """The embedded local cluster, empty."""
    place = LocalPlace(root=tmp_path / "tony")
    yield place
    place.close()


@pytest.fixture
def yarn(hadoop: HadoopCluster) -> Iterator[YarnPlace]:
    """The cluster that all tests share, as an ordinary user."""
    place = YarnPlace(cluster=hadoop)
    yield place
    place.close()


@pytest.fixture
def secure(secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnPlace]:
    """A cluster with Kerberos, as a user who has a keytab."""
    for name, value in secure_hadoop.layout.kerberos_environment(USER).items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    place = YarnPlace(cluster=secure_hadoop)
    yield place
    place.close()


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.long), "yarn"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each backend in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that any user may write, apart from those in which the local cluster keeps its files."""
    directory = tmp_path_factory.mktemp("open")
    directory.chmod(0o777)
    return directory


@pytest.fixture
def wishes(request: pytest.FixtureRequest, open_directory: Path) -> Path:
    """A directory in which jobs and the test leave files for each other, with the test module's PROGRAM."""
    (open_directory / "train.py").write_text(request.module.PROGRAM)
    return open_directory

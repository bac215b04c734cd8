from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateways.knox import Knox, knox
from tests.gateways.metastore import Metastore, metastore
from tests.hadoop.cluster import HadoopCluster


@pytest.fixture(scope="module")
def secure_gateway(secure_hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Knox]:
    with knox(secure_hadoop, tmp_path_factory.mktemp("knox")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Knox]:
    with knox(hadoop, tmp_path_factory.mktemp("knox")) as running:
        yield running


@pytest.fixture(scope="module")
def hive(secure_hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with metastore(secure_hadoop, tmp_path_factory.mktemp("hive")) as running:
        yield running

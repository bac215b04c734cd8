from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.airflow import AirflowError
from tests.e2e.installation import Installation
from tests.hadoop.cluster import HadoopCluster

OUTPUT = Path(os.environ.get("E2E_OUTPUT") or Path(__file__).resolve().parents[2] / "test-output" / "e2e")


@pytest.fixture(scope="module")  # while other tests run it would only cost them processor time
def installation(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The one Airflow of all these tests; its logs stay in pytest's folder."""
    installation = Installation(tmp_path_factory.mktemp("e2e") / "airflow", hadoop)
    try:
        installation.start()
    except AirflowError as error:
        pytest.fail(str(error), pytrace=False)
    try:
        yield installation
    finally:
        installation.stop()

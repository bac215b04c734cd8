"""An Airflow of the test session's own: a home in a temporary directory with an empty SQLite database.

A pytest plugin, since the home must be named before anything imports Airflow.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.demo.airflow import settings

HOME = Path(tempfile.mkdtemp(prefix="tony-airflow-"))
DAGS = HOME / "dags"
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(settings(HOME, DAGS))


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Airflow's database, ready for use."""
    DAGS.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"airflow db migrate failed:\n{done.stdout}{done.stderr}", pytrace=False)

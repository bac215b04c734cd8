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
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.airflow import settings

# Another process's, for tests that start tasks in processes of their own.
SHARED = "TONY_TEST_AIRFLOW_HOME"

HOME = Path(os.environ.get(SHARED) or tempfile.mkdtemp(prefix="tony-airflow-"))
DAGS = HOME / "dags"
if SHARED not in os.environ:
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(settings(HOME, DAGS))
os.environ["AIRFLOW__TONY__LIST_INTERVAL"] = "0.2"  # seconds; tests need not wait for a triggerer's next look


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Airflow's database, ready for use."""
    try:
        migrate()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"airflow db migrate failed:\n{error.stdout}{error.stderr}", pytrace=False)


_MASKERS = ("airflow._shared.secrets_masker.secrets_masker", "airflow.sdk._shared.secrets_masker.secrets_masker")


@pytest.fixture(autouse=True)
def forget_masked_secrets() -> Iterator[None]:
    """Otherwise Airflow compiles one expression of all secrets of all tests with each new one: minutes in all."""
    yield
    for name in _MASKERS:
        if name in sys.modules:
            sys.modules[name].reset_secrets_masker()


@pytest.fixture
def older_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow says that it is 3.0.6.

    Only what asks for its age as it is used is told so, and nothing of Airflow itself is another one.
    """
    from tony_provider import compat  # here: it imports Airflow

    monkeypatch.setattr(compat, "AIRFLOW_VERSION", "3.0.6")


def migrate() -> None:
    """Make the database. Raises subprocess.CalledProcessError."""
    DAGS.mkdir()
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

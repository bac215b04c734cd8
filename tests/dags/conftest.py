"""Fixtures of the tests of the example DAGs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from tests.dags.examples import example_dags
from tests.kinds.environments import has_torch
from tony_provider.hooks.tony import TonyHook


@pytest.fixture(scope="module")
def examples(airflow_db: None) -> DagBag:
    return example_dags()


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TonyHook]:
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    with TonyHook() as hook:
        yield hook


@pytest.fixture
def torch() -> None:
    """Skip the test if Debian's PyTorch is not installed."""
    if not has_torch():
        pytest.skip("needs Debian's python3-torch: sh tests/packages.sh torch")

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tony_provider.hooks.tony import TonyHook


@pytest.fixture
def local(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TonyHook:
    """The embedded local cluster, as the connection ``tony_default``; a hook to look at it from outside."""
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path / "tony")}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    return TonyHook()

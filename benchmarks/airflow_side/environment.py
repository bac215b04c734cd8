"""Environments of Airflow's processes, with the provider and without it."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.hadoop import REPOSITORY

WITHOUT = "without the provider"
_HIDDEN = Path(__file__).with_name("hidden")


def environment(home: Path, *, hidden: bool = False, **more: str) -> dict[str, str]:
    """Of a process whose Airflow lives in ``home``. ``hidden``: the provider is not installed there."""
    path = [str(REPOSITORY), *([str(_HIDDEN)] if hidden else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path), **more}

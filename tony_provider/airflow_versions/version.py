"""Which Airflow this is."""

from __future__ import annotations

import airflow

AIRFLOW: str = airflow.__version__


def is_at_least(major: int, minor: int) -> bool:
    """Whether the installed Airflow is of this minor version, or a newer one."""
    mine, of_it, *_ = AIRFLOW.split(".")
    return (int(mine), int(of_it)) >= (major, minor)

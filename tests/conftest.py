"""Fixtures that every test may use."""

from __future__ import annotations

pytest_plugins = ["tests.airflow_home", "tests.hadoop.fixtures", "tests.sharing"]

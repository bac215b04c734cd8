"""Fixtures that every test may use."""

from __future__ import annotations

pytest_plugins = ["pytester", "tests.airflow_home", "tests.daemons", "tests.hadoop.fixtures", "tests.sharing"]

"""Fixtures that every test may use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test fails because the machine is slow.
settings.register_profile("tony", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tony")

pytest_plugins = [
    "pytester",
    "tests.airflow_home",
    "tests.daemons",
    "tests.hadoop.fixtures",
    "tests.s3proxy",
    "tests.sharing",
]

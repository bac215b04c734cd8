"""The embedded local cluster and a real YARN, for jobs that are judged."""

from __future__ import annotations

from tests.advice.real.table import pytest_terminal_summary, verdicts
from tests.jobs.conftest import local, yarn

__all__ = ["local", "pytest_terminal_summary", "verdicts", "yarn"]

from __future__ import annotations

from tests.operators.conftest import local, marker
from tests.operators.telemetry.conftest import mlflow

__all__ = ["local", "marker", "mlflow"]

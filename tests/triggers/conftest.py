from __future__ import annotations

from tests.operators.conftest import local, marker

__all__ = ["local", "marker"]

from __future__ import annotations

from tests.operators.conftest import local

__all__ = ["local"]

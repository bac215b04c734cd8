from __future__ import annotations

from tests.operators.conftest import _sigterm, local, marker, yarn

__all__ = ["_sigterm", "local", "marker", "yarn"]

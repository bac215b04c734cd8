from __future__ import annotations

from tests.runtime.storage.conftest import place, webhdfs_config

__all__ = ["place", "webhdfs_config"]

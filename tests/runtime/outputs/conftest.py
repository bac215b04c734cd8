from __future__ import annotations

from tests.runtime.storage.conftest import hdfs, place, webhdfs_config

__all__ = ["hdfs", "place", "webhdfs_config"]

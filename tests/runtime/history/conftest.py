from __future__ import annotations

from tests.runtime.storage.conftest import hdfs, webhdfs_config

__all__ = ["hdfs", "webhdfs_config"]

"""Storage on HDFS over WebHDFS, with the standard library alone, since it travels to the nodes."""

from tony_provider.runtime.storage.webhdfs.config import WebHdfsConfig
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

__all__ = ["WebHdfsConfig", "WebHdfsStorage"]

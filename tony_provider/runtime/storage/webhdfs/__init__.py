"""Storage on HDFS over WebHDFS, with the standard library alone, since it travels to the nodes."""

from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

__all__ = ["WebHdfsConfig", "WebHdfsStorage"]

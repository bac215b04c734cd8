"""Storage on HDFS over WebHDFS, only with the standard library, because the nodes run it as well."""

from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

__all__ = ["WebHdfsConfig", "WebHdfsStorage"]

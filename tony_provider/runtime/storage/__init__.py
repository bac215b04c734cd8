"""Storage of files: one interface with implementations for HDFS, the local disk and object stores."""

from tony_provider.runtime.storage.base import (
    FileStatus,
    Source,
    Storage,
    download,
    is_temporary,
    read_bytes,
    read_text,
    read_whole,
    upload,
    walk,
    write_atomically,
)
from tony_provider.runtime.storage.errors import (
    StorageAuthError,
    StorageError,
    StorageExists,
    StorageInvalidPath,
    StorageIsADirectory,
    StorageNoSpace,
    StorageNotADirectory,
    StorageNotEmpty,
    StorageNotFound,
    StoragePermissionDenied,
    StorageTimeout,
    StorageTooLarge,
    StorageUnreachable,
    StorageUnsupported,
)
from tony_provider.runtime.storage.local import LocalStorage, local_path
from tony_provider.runtime.storage.stores import open_storage
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import Negotiate, WebHdfsConfig

__all__ = [
    "FileStatus",
    "LocalStorage",
    "Negotiate",
    "Source",
    "Storage",
    "StorageAuthError",
    "StorageError",
    "StorageExists",
    "StorageInvalidPath",
    "StorageIsADirectory",
    "StorageNoSpace",
    "StorageNotADirectory",
    "StorageNotEmpty",
    "StorageNotFound",
    "StoragePermissionDenied",
    "StorageTimeout",
    "StorageTooLarge",
    "StorageUnreachable",
    "StorageUnsupported",
    "WebHdfsConfig",
    "WebHdfsStorage",
    "download",
    "is_temporary",
    "local_path",
    "open_storage",
    "read_bytes",
    "read_text",
    "read_whole",
    "upload",
    "walk",
    "write_atomically",
]

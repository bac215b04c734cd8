"""Storage of files: one interface, and HDFS, local disk and fsspec behind it."""

from tony_provider.runtime.storage.base import FileStatus, Source, Storage, is_temporary
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
from tony_provider.runtime.storage.factory import open_storage
from tony_provider.runtime.storage.helpers import (
    download,
    read_bytes,
    read_text,
    read_whole,
    upload,
    walk,
    write_atomically,
    write_in_order,
)
from tony_provider.runtime.storage.local import LocalStorage, local_path
from tony_provider.runtime.storage.webhdfs.config import Negotiate, WebHdfsConfig
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

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
    "write_in_order",
]

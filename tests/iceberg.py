"""Tables of Iceberg by PyIceberg: metadata, manifests and snapshots of files that lie on a store already."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tony_provider.runtime.storage.base import Storage, read_bytes

_stores: dict[str, Storage] = {}  # by the property that names them: PyIceberg makes the object with the files itself
_STORE = "tests.store"


class StoredFiles(FileIO):  # type: ignore[misc,unused-ignore]  # without the extra, its type is unknown
    """Files of one of our stores."""

    def new_input(self, location: str) -> InputFile:
        return _Input(location, _stores[self.properties[_STORE]])

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, _stores[self.properties[_STORE]])

    def delete(self, location: Any) -> None:
        raise NotImplementedError(location)


class _Stored:
    """A file of a store, as both of PyIceberg's kinds of files have it."""

    location: str  # of PyIceberg's class, which follows

    def __init__(self, location: str, store: Storage) -> None:
        super().__init__(location)  # type: ignore[call-arg]
        self._store = store

    def __len__(self) -> int:
        return self._store.status(self.location).size

    def exists(self) -> bool:
        return self._store.exists(self.location)


class _Input(_Stored, InputFile):  # type: ignore[misc,unused-ignore]  # without the extra, its type is unknown
    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(read_bytes(self._store, self.location))


class _Output(_Stored, OutputFile):  # type: ignore[misc,unused-ignore]  # without the extra, its type is unknown
    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._store)

    def create(self, overwrite: bool = False) -> Any:
        return _Upload(self.location, self._store)


class _Upload(io.BytesIO):
    """Written to the store when it is closed."""

    def __init__(self, uri: str, store: Storage) -> None:
        super().__init__()
        self._uri, self._store = uri, store

    def close(self) -> None:
        if not self.closed:
            self._store.write(self._uri, self.getvalue(), overwrite=True)
        super().close()


@dataclass
class IcebergTable:
    """A table in a directory of a store; its catalog is this process's own."""

    store: Storage
    directory: str
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        _stores[self.directory] = self.store
        files = {"py-io-impl": f"{__name__}.{StoredFiles.__name__}", _STORE: self.directory}
        catalog = InMemoryCatalog("tests", warehouse=self.directory, **files)
        catalog.create_namespace("tests")
        schema = Schema(NestedField(1, "day", LongType()), NestedField(2, "amount", LongType()))
        self.table = catalog.create_table("tests.table", schema, location=self.directory)

    @property
    def metadata_location(self) -> str:
        """What a metastore keeps of a table."""
        return str(self.table.metadata_location)

    def append(
        self,
        files: Iterable[tuple[str, int]],
        content: DataFileContent = DataFileContent.DATA,
        form: FileFormat = FileFormat.PARQUET,
    ) -> int:
        """Add files by URI and size, as rows or as deleted rows; the id of the snapshot."""
        with self.table.transaction() as transaction:
            update = transaction.update_snapshot().fast_append()
            with update:
                for uri, size in files:
                    update.append_data_file(_described(uri, size, content, form))
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return int(snapshot.snapshot_id)


def _described(uri: str, size: int, content: DataFileContent, form: FileFormat) -> DataFile:
    described = DataFile.from_args(
        content=content,
        file_path=uri,
        file_format=form,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=None,
        sort_order_id=None,
    )
    described.spec_id = 0
    return described

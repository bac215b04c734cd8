"""Read the sizes of a Parquet file's row groups from its footer, with a minimal parser of Thrift's compact protocol.

The structures are those of parquet.thrift. ``FileMetaData`` has the row groups as field 4. A ``RowGroup`` has its
uncompressed bytes as field 2, and its bytes in the file as field 6, which older writers omit.
"""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.runtime.common.binary import EndlessNumber, read_varint
from tony_provider.runtime.storage import Storage, read_bytes

_PLAIN, _ENCRYPTED = b"PAR1", b"PARE"
_END = 8  # bytes: the footer's length, and the magic
_FIRST_READ = 64 << 10  # bytes that contain most footers
_LONGEST = 64 << 20
_DEEPEST = 32  # nested structures; parquet.thrift has 6 levels


class ParquetError(ValueError):
    """A file is no Parquet file, or its footer is unreadable; the message gives the reason but not the file."""


def row_group_sizes(storage: Storage, uri: str, size: int) -> list[int]:
    """Return the bytes of each row group in a file of ``size`` bytes. Blocks; raises ParquetError, StorageError."""
    if size < len(_PLAIN) + _END:
        raise ParquetError("it is too short")
    end = _read(storage, uri, size, min(size, _FIRST_READ))
    if end[-4:] == _ENCRYPTED:
        raise ParquetError("its footer is encrypted, so that its row groups cannot be seen")
    if end[-4:] != _PLAIN:
        raise ParquetError("it does not end as one")
    length = int.from_bytes(end[-_END:-4], "little") + _END
    if length + len(_PLAIN) > size:
        raise ParquetError(f"its footer of {length - _END} bytes would be longer than the file")
    if length > _LONGEST:
        raise ParquetError(f"its footer has {length - _END} bytes, more than {_LONGEST} that are read")
    if length > len(end):
        end = _read(storage, uri, size, length)
    return _in_the_file(parse_footer(end[-length:-_END]), size)


def parse_footer(footer: bytes) -> list[tuple[int, int]]:
    """Return the uncompressed bytes of each row group, and its bytes in the file (0 if unknown).

    Raises ParquetError.
    """
    compact = _Compact(footer)
    try:
        groups = _row_groups(compact)
    except (IndexError, RecursionError, EndlessNumber) as error:
        raise ParquetError("its footer is damaged") from error
    if compact.position > len(footer) or any(min(group) < 0 for group in groups):
        raise ParquetError("its footer is damaged")
    return groups


def _read(storage: Storage, uri: str, size: int, length: int) -> bytes:
    data = read_bytes(storage, uri, offset=size - length, length=length)
    if len(data) != length:
        raise ParquetError("it has become shorter since it was listed")
    return data


def _in_the_file(groups: list[tuple[int, int]], size: int) -> list[int]:
    """Return the bytes of each group in the file, estimated from the uncompressed bytes if they are unknown."""
    if all(compressed for _, compressed in groups):
        return [compressed for _, compressed in groups]
    total = sum(plain for plain, _ in groups)
    return [size * plain // total if total else size // len(groups) for plain, _ in groups]


def _row_groups(compact: _Compact) -> list[tuple[int, int]]:
    for field, kind in compact.fields():
        if field == 4:
            count, element = compact.elements()
            if kind != _LIST or element != _STRUCT:
                raise ParquetError("its footer is damaged")
            return [_row_group(compact) for _ in range(count)]
        compact.skip(kind)
    raise ParquetError("its footer says nothing of row groups")


def _row_group(compact: _Compact) -> tuple[int, int]:
    plain = compressed = 0
    for field, kind in compact.fields():
        if field == 2 and kind == _I64:
            plain = compact.integer()
        elif field == 6 and kind == _I64:
            compressed = compact.integer()
        else:
            compact.skip(kind)
    return plain, compressed


_BOOLEANS = (1, 2)
_I64 = 6
_NUMBERS = (4, 5, _I64)
_FIXED = {3: 1, 7: 8, 13: 16}  # bytes of a byte, a double, a UUID
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12


class _Compact:
    """Reader of Thrift's compact protocol. Raises IndexError, ParquetError for invalid data.

    After a skipped value, ``position`` may be beyond the end of the data.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield numbers and types of a structure's fields. Read or skip each value before the next field."""
        field = 0
        while header := self._byte():
            more = header >> 4
            field = field + more if more else self.integer()
            yield field, header & 15

    def elements(self) -> tuple[int, int]:
        """Return the number of elements of a list, and their type."""
        count, kind, self.position = _list_header(self._data, self.position)
        return count, kind

    def integer(self) -> int:
        number, self.position = read_varint(self._data, self.position)
        return (number >> 1) ^ -(number & 1)

    def skip(self, kind: int) -> None:
        """Move behind a value."""
        self.position = _behind(self._data, self.position, kind, 0)

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]


# Almost all of a footer is skipped value by value. For speed this uses functions of positions, and no calls for short
# values.


def _behind(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the position behind the field value that begins at ``at``."""
    if kind in _BOOLEANS:
        return at  # the value is in the type
    if kind in _NUMBERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = read_varint(data, at)
        return at + length
    if kind in _FIXED:
        return at + _FIXED[kind]
    if depth > _DEEPEST:
        raise ParquetError("its footer is damaged")
    if kind == _STRUCT:
        return _behind_struct(data, at, depth)
    if kind in (_LIST, _SET):
        count, element, at = _list_header(data, at)
        return _behind_elements(data, at, count, (element,), depth)
    if kind == _MAP:
        count, at = read_varint(data, at)
        return _behind_elements(data, at + 1, count, (data[at] >> 4, data[at] & 15), depth) if count else at
    raise ParquetError("its footer is damaged")


def _behind_struct(data: bytes, at: int, depth: int) -> int:
    while header := data[at]:
        at += 1
        if header < 16:  # the field's number follows
            while data[at] > 127:
                at += 1
            at += 1
        kind = header & 15
        if kind in _NUMBERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind == _BINARY and data[at] < 128:
            at += data[at] + 1
        else:
            at = _behind(data, at, kind, depth + 1)
    return at + 1


def _behind_elements(data: bytes, at: int, count: int, kinds: tuple[int, ...], depth: int) -> int:
    for _ in range(count):
        for kind in kinds:
            at = at + 1 if kind in _BOOLEANS else _behind(data, at, kind, depth + 1)  # Booleans have a byte as elements
        if at > len(data):
            raise ParquetError("its footer is damaged")
    return at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of elements, their type, and the position of the first one."""
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = read_varint(data, at)
    return count, kind, at

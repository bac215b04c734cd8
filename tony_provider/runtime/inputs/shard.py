"""A shard of an input, and the line of JSON that it is in listings and parts."""

from __future__ import annotations

import json
from typing import Optional

import attrs

from tony_provider.runtime.foreign_json import read_json
from tony_provider.runtime.storage import FileStatus


@attrs.frozen
class InputShard:
    """A file of an input, or a piece of one; the file as it was when it was listed.

    A line has only what is known of its shard, so that those of earlier releases, which knew whole files, are read.
    """

    uri: str
    size: int  # bytes of the file
    modified_ms: int  # epoch, as the store reports it; 0 where it does not
    format: Optional[str] = None  # of InputFormat; None where the program knows what is in it
    offset: Optional[int] = None  # of a piece: bytes before it. Its records are those that begin in it
    length: Optional[int] = None  # of a piece: its bytes
    row_groups: Optional[tuple[int, int]] = None  # of a piece of a Parquet file: the first, and the one after the last
    checksum: Optional[str] = None  # of the file, as its store gives it

    @property
    def bytes_to_read(self) -> int:
        """What the deal is balanced by."""
        return self.size if self.length is None else self.length

    @classmethod
    def of_status(cls, status: FileStatus) -> InputShard:
        return cls(status.path, status.size, status.modified_ms)

    @classmethod
    def of_line(cls, line: bytes) -> InputShard:
        """Raises ValueError for what ``line`` did not write."""
        fields = read_json(line)
        try:
            groups = fields.get("row_groups")
            return cls(
                fields["uri"],
                fields["size"],
                fields["modified_ms"],
                fields.get("format"),
                fields.get("offset"),
                fields.get("length"),
                None if groups is None else (groups[0], groups[1]),
                fields.get("checksum"),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a shard: {line[:200]!r}") from error

    def line(self) -> bytes:
        fields = {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}
        return _ENCODER.encode(fields).encode() + b"\n"


_FIELDS = [field.name for field in attrs.fields(InputShard)]
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # to make one takes as long as writing a line

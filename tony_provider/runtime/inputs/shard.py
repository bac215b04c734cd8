"""A shard of an input, and the line of JSON that it is in listings and parts."""

from __future__ import annotations

import json

import attrs

from tony_provider.runtime.storage import FileStatus


@attrs.frozen
class InputShard:
    """A file of an input, as it was when it was listed."""

    uri: str
    size: int  # bytes
    modified_ms: int  # epoch, as the store reports it; 0 where it does not

    @classmethod
    def of_status(cls, status: FileStatus) -> InputShard:
        return cls(status.path, status.size, status.modified_ms)

    @classmethod
    def of_line(cls, line: bytes) -> InputShard:
        """Raises ValueError for what ``line`` did not write."""
        fields = json.loads(line)
        try:
            return cls(fields["uri"], fields["size"], fields["modified_ms"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a shard: {line[:200]!r}") from error

    def line(self) -> bytes:
        return json.dumps(attrs.asdict(self), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

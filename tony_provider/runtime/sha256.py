"""SHA-256 of files: what tells that nobody has changed them, on purpose neither."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from tony_provider.runtime.storage.base import CHUNK


def sha256_of(stream: BinaryIO) -> str:
    """The SHA-256 of all that is left in a stream, hexadecimal. Raises what its ``read`` does."""
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()

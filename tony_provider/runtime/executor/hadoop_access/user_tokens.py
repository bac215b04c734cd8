"""The token file of user processes: the container's HDFS delegation tokens, and nothing else of its credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials
from tony_provider.runtime.private_file import write_private_file


class UserTokens:
    """A token file for user processes at ``target``, kept like the container's own at ``source``.

    What the container's file holds beside HDFS's tokens speaks for the executor, and stays out.
    """

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._read: Optional[tuple[int, int, int]] = None  # the state of the source that the target is of
        self.services: list[str] = []  # what the tokens are for, such as ha-hdfs:nameservice; none: there is no file

    def follow(self) -> None:
        """Write the file anew if the container's has changed. Blocks; raises OSError, CredentialsError.

        After an error the last one stays, and the next call tries again. Not for several threads at a time.
        """
        found = self._source.stat()
        state = (found.st_mtime_ns, found.st_size, found.st_ino)
        if state == self._read:
            return
        tokens = {
            alias: token
            for alias, token in Credentials.read_file(self._source).tokens.items()
            if token.kind == HDFS_TOKEN
        }
        if tokens:
            write_private_file(self._target, Credentials(tokens).to_bytes())
        else:
            self._target.unlink(missing_ok=True)
        self.services = [token.service for token in tokens.values()]
        self._read = state

"""The token file of user processes: the container's HDFS delegation tokens, and nothing else of its credentials."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.executor.container_credentials import ContainerCredentials
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.private_file import write_private_file


class UserTokens:
    """A token file for user processes at ``target``, kept like the container's credentials.

    What these hold beside HDFS's tokens speaks for the executor, and stays out.
    """

    def __init__(self, credentials: ContainerCredentials, target: Path) -> None:
        self._credentials = credentials
        self._target = target
        self._written = -1  # the version of the credentials that the file is of
        self.services: list[str] = []  # what the tokens are for, such as ha-hdfs:nameservice; none: there is no file

    def follow(self) -> None:
        """Write the file anew if there are newer tokens. Blocks; raises OSError.

        After an error the last one stays, and the next call tries again. Not for several threads at a time.
        """
        version, tokens = self._credentials.hdfs_tokens()
        if version == self._written:
            return
        if tokens:
            write_private_file(self._target, Credentials(tokens).to_bytes())
        self.services = list(dict.fromkeys(token.service for token in tokens.values()))
        self._written = version

    def withdraw(self) -> None:
        """Remove the file, until ``follow`` writes it again. Blocks; raises OSError."""
        self._written = -1
        self._target.unlink(missing_ok=True)

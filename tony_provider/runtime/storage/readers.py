"""Who may read some files of a store beside their owner, and which files these are."""

from __future__ import annotations

from enum import Enum

import attrs

from tony_provider.runtime.storage.uris import Uri


class Right(str, Enum):
    """What somebody may do with a file or directory, as access lists of HDFS write it."""

    READ = "r--"  # a file
    LIST = "r-x"  # a directory, and get to what is in it
    PASS = "--x"  # through a directory, to what is in it by names that one knows


@attrs.frozen
class Readers:
    """Users and groups that may read what others own."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    everybody: bool = False

    def __bool__(self) -> bool:
        return bool(self.everybody or self.users or self.groups)

    def named(self, right: Right) -> list[str]:
        """The entries of an access list that give this right to those who are named, as HDFS reads them."""
        everyone = [*(f"user:{name}" for name in self.users), *(f"group:{name}" for name in self.groups)]
        return [f"{each}:{right.value}" for each in everyone]


@attrs.frozen
class SharedFiles:
    """The files that readers may read: those at ``files``, and all that are in ``directories``, but not below them."""

    readers: Readers
    files: frozenset[str]  # paths
    directories: frozenset[str]  # paths

    def has(self, uri: Uri) -> bool:
        return uri.path in self.files or uri.parent.path in self.directories

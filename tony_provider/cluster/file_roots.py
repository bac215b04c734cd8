"""The directories of this machine that the files of a job may lie in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs


@attrs.frozen
class FileRoots:
    """The directories of this machine below which a job's files must lie.

    The connection's ``file_roots`` names them. Without ``file_roots`` they are the directories of the DAG or of the
    command line. A directory may be a link, and a root may be a single file.
    """

    conn_id: str
    directories: Sequence[Path]
    of_connection: bool = False
    made: Sequence[Path] = ()  # files that were generated for the submission, so exempt

    def problem(self, path: Path) -> str:
        """Return why a job may not take this file or directory, or an empty string if it may.

        Links are followed on both sides before the comparison, so that a link does not lead out of a root.
        """
        if path in self.made:
            return ""
        place = path.resolve()
        if any(place.is_relative_to(root.resolve()) for root in self.directories):
            return ""
        roots = ", ".join(map(str, self.directories)) or "none"
        # The path may come from a trigger form, and may hold control characters.
        shown = str(place) if str(place).isprintable() else ascii(str(place))
        if self.of_connection:
            return (
                f"{shown} is not what the connection {self.conn_id!r} allows (file_roots: {roots}), which its "
                "administrator may change"
            )
        return (
            f"{shown} lies outside the directories that this job may take files from ({roots}); move it there, or "
            f"have the administrator of the connection {self.conn_id!r} name its directory in `file_roots`"
        )

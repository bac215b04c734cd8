"""Paths of an output's target, staging directory and parts.

A part is what one start of a task has written for an output.
"""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.storage import uris


@attrs.frozen
class OutputPart:
    """Files that one start of a task has left on the store, in a separate directory."""

    output: str  # the output's name
    part: str  # the directory's name, from ``part_name``
    files: int
    bytes: int


def part_name(task: str, attempt: int, start: int) -> str:
    """Return the name of a task's part from the numbers of container and process: worker-3.2.1 for worker:3."""
    return f"{contract.path_of_task(task)}.{attempt}.{start}"


def task_directory(part: str) -> str:
    """Return the directory of a part's task below the path of the output, such as worker-3.

    Files that an earlier start has committed are next to it, in a directory with the part's own name.
    """
    return part.rsplit(".", 2)[0]


DATA_FILE = 0o644
DATA_DIRECTORY = 0o755
"""Others may read outputs; the owner can restrict access by the permissions of a parent directory."""


@attrs.frozen
class OutputPlace:
    """The directories of one output of one application.

    Staging directories are next to the target, so that they share its encryption zone and default ACL. Their names
    begin with _, so that readers of the parent directory ignore them.
    """

    target: str  # URI or path, as in the job
    application_id: str

    @property
    def uri(self) -> str:
        """The target as a URI, also if the job has a path."""
        return str(uris.parse(self.target))

    @property
    def staging(self) -> str:
        """The directory that contains all parts."""
        return self._beside("")

    @property
    def assembled(self) -> str:
        """The directory that is renamed to the target. It is in the staging directory, but no task writes there."""
        return uris.join(self.staging, "out")

    @property
    def former(self) -> str:
        """The directory that holds the target's former content during the swap."""
        return self._beside(".old")

    def part(self, part: str) -> str:
        """Return the directory of one part."""
        return uris.join(self.staging, part)

    def of_part(self, uri: str) -> Optional[tuple[str, str]]:
        """Return the part that contains a file and the path there, or None if the file is in no part."""
        beginning = self.staging + "/"
        part, _, path = uri[len(beginning) :].partition("/")
        return (part, path) if uri.startswith(beginning) and path else None

    def _beside(self, ending: str) -> str:
        target = uris.parse(self.target)
        return str(target.parent.child(f"_{target.name}.{self.application_id}{ending}"))

"""A part of an output: what one start of a task has left for it."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.storage import uris


@attrs.frozen
class OutputPart:
    """What is on the store of one start of a task, in a directory that no other start writes."""

    output: str  # its name
    part: str  # the directory's name, see ``part_name``
    files: int
    bytes: int


def part_name(task: str, attempt: int, start: int) -> str:
    """The name of the part of a task, such as worker:3, by its container's and its process's numbers: worker-3.2.1."""
    return f"{contract.path_of_task(task)}.{attempt}.{start}"


def task_directory(part: str) -> str:
    """The directory of a part's task below the path of the output: worker-3.

    What an earlier start had committed is beside it, under the part's own name.
    """
    return part.rsplit(".", 2)[0]


DATA_FILE = 0o644
DATA_DIRECTORY = 0o755
"""Others read what is written; that a directory above keeps them out is the store's and its owner's matter."""


@attrs.frozen
class OutputPlace:
    """The places of one output of one application.

    What is made is beside the target: in the same encryption zone, under the same default access list. Names that begin
    with _ are none of a reader's.
    """

    target: str  # URI, as written
    application_id: str

    @property
    def uri(self) -> str:
        """The target as a URI, also where it was written as a path."""
        return str(uris.parse(self.target))

    @property
    def staging(self) -> str:
        """The directory of all parts."""
        return self._beside("")

    @property
    def assembled(self) -> str:
        """The directory that becomes the target. In the staging directory, but no task writes there."""
        return uris.join(self.staging, "out")

    @property
    def former(self) -> str:
        """The directory for what was at the target, for a moment."""
        return self._beside(".old")

    def part(self, part: str) -> str:
        """The directory of one part."""
        return uris.join(self.staging, part)

    def of_part(self, uri: str) -> Optional[tuple[str, str]]:
        """The part that a file is in, and its path there; None for one that is in no part."""
        beginning = self.staging + "/"
        part, _, path = uri[len(beginning) :].partition("/")
        return (part, path) if uri.startswith(beginning) and path else None

    def _beside(self, ending: str) -> str:
        target = uris.parse(self.target)
        return str(target.parent.child(f"_{target.name}.{self.application_id}{ending}"))

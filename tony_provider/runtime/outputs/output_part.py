"""A part of an output: what one start of a task has left for it."""

from __future__ import annotations

import attrs

from tony_provider.runtime import contract


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

"""A piece of what a task has printed, as its application's master answers with it."""

from __future__ import annotations

from typing import ClassVar, Optional

import attrs

from tony_provider.runtime.contract import path_of_task

PATH = "output/"  # of the master's pages, below which each task has one
END = 1 << 62  # more than any task prints: asked for what comes after it, a master tells where the end is


def request(task: str, attempt: Optional[int], after: int) -> str:
    """The path and query of the request for what ``task`` has printed after so many bytes."""
    query = f"after={after}" if attempt is None else f"after={after}&attempt={attempt}"
    return f"{PATH}{path_of_task(task)}?{query}"


@attrs.frozen
class OutputPiece:
    """A piece of what a task has printed in one of its containers, without the values of the job's secrets.

    ``text`` was made of bytes with Python's ``surrogateescape``; masks make it longer or shorter than they were.
    """

    attempt: int  # the container's number, from 1
    newest: int  # the number of the task's newest container
    start: int  # bytes that were printed before; more than were asked for: those between are not to be had
    end: int  # bytes that were printed up to the end of this piece
    text: str = ""  # from the start of a line, or where it was asked for
    problem: str = ""  # why there is nothing just now

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    @property
    def data(self) -> bytes:
        try:
            return self.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # halves that stand for no byte: no master of ours wrote it
            return self.text.encode("utf-8", "replace")

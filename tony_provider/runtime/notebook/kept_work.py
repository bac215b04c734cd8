"""What people have written in a notebook, kept as a checkpoint of its training: one archive for each time.

An archive is made of copies, and never changed. So what is kept is a whole: of a file that is written meanwhile, the
copy may be a mixture, and then another archive follows it.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from .archive import pack, unpack
from .words import count, named, size
from .work_files import MOST_FILES, NOT_KEPT, WorkChoice, WorkFile, below

_ARCHIVE = re.compile(r"work-(\d{1,18})\.tar")
_KEPT = 2  # archives here: the newest, and the one before, which may be under way to the store
_NOTE = """\
These files are not kept: together all files of a notebook may have {most}, and be {files}.
They go with the notebook's container. Put them where they stay (HDFS, an output of a job),
or open the notebook again with more: airflow tony notebook --keep 8GiB

{lines}
"""


class KeptWork:
    """The directory of a notebook's work, and its archives."""

    def __init__(self, directory: Path, checkpoints: Path, most_bytes: int, links: Sequence[str] = ()) -> None:
        """``links``: names of those in the directory that are ours, and no work."""
        self.directory = directory
        self._checkpoints = checkpoints
        self._most_bytes = most_bytes
        self._links = frozenset(links)
        self._seen: Optional[Sequence[WorkFile]] = None  # at the last look
        self._kept: Optional[Sequence[WorkFile]] = None  # as they were found when they were kept last
        self._left: Sequence[WorkFile] = ()
        self.number: Optional[int] = None  # of the newest archive that was made here; None: none was
        self.missing = ""  # what is not in it, for people; empty: nothing

    def restore(self, resume_from: Optional[str]) -> str:
        """Have the directory hold what was kept last; returns what it holds, for people.

        One that is there already, of a start before in this container, stays as it is. Raises OSError,
        tarfile.TarError for an archive that is none.
        """
        if self.directory.is_dir():
            return "as it was in this container"
        partly = self.directory.with_name(self.directory.name + ".partly")
        shutil.rmtree(partly, ignore_errors=True)
        partly.mkdir(mode=0o700)
        if resume_from:
            unpack(Path(resume_from), partly)
        partly.rename(self.directory)
        self._seen = self._kept = self._found()
        return f"as it was kept last ({count(self._kept)})" if resume_from else "new, and empty"

    def look(self) -> bool:
        """Look at all files; returns whether something has changed since the last look."""
        before, self._seen = self._seen, self._found()
        return self._seen != before

    @property
    def is_kept(self) -> bool:
        """Whether what was there at the last look is kept."""
        return self._seen == self._kept

    def keep(self) -> str:
        """Keep what is there now; returns what was done, for people. Raises OSError."""
        found = self._seen = self._found()
        choice = WorkChoice.of(found, self._most_bytes)
        number = 1 + max([int(os.environ.get("TONY_RESUME_STEP") or 0), *(n for n, _ in self._archives())])
        archive = self._checkpoints / f"work-{number}.tar"
        partly = archive.with_name(f".{archive.name}.partly")
        try:
            packed = pack(self.directory, choice.kept, partly)
            partly.rename(archive)
        finally:
            partly.unlink(missing_ok=True)
        self._note(number, archive)
        self._kept = None if packed.changing else found
        self.number = number
        self._forget_old()
        self._tell_left(choice.left)
        said = f"{count(choice.kept)} kept, {size(sum(each.size for each in choice.kept))}"
        if packed.changing:
            said += f"; written meanwhile, and kept again: {named(packed.changing)}"
        missing = []
        if packed.unreadable:
            missing.append(f"NOT kept, as they cannot be read: {named(packed.unreadable)}")
        if choice.left:
            missing.append(f"NOT kept for lack of room: {named([each.path for each in choice.left])}")
        self.missing = "; ".join(missing)
        return "; ".join([said, *missing])

    def _note(self, number: int, archive: Path) -> None:
        """Have it copied to the store. Raises OSError; an archive that is not noted does not stay."""
        noted = False
        try:
            noted = importlib.import_module("tony_sdk").commit_checkpoint(number, archive.name)
        finally:
            if not noted:
                archive.unlink(missing_ok=True)
        if not noted:
            raise OSError(f"{archive.name} could not be noted: the disk may be full")

    def _archives(self) -> list[tuple[int, Path]]:
        """By their numbers, the oldest first."""
        found = [(match, path) for path in self._checkpoints.iterdir() if (match := _ARCHIVE.fullmatch(path.name))]
        return sorted((int(match[1]), path) for match, path in found)

    def _forget_old(self) -> None:
        for number, path in self._archives()[:-_KEPT]:
            path.with_name(f"step-{number}.tony.json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _found(self) -> Sequence[WorkFile]:
        return sorted(below(self.directory, self._links), key=lambda file: file.path)

    def _tell_left(self, left: Sequence[WorkFile]) -> None:
        """Where somebody sees it who looks at nothing but the notebook."""
        note = self.directory / NOT_KEPT
        if not left:
            note.unlink(missing_ok=True)
        elif left != self._left:
            lines = [f"{size(each.size):>10}  {each.path}" for each in left]
            text = _NOTE.format(most=size(self._most_bytes), files=MOST_FILES, lines="\n".join(lines))
            note.write_text(text, errors="surrogateescape")
        self._left = left

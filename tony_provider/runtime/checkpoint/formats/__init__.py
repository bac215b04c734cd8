"""Which complete checkpoints a task's directory holds: verified by reading, never by name alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.checkpoint.formats import manifest, tensorflow
from tony_provider.runtime.checkpoint.formats.view import Broken, Finding, Memory, View, look
from tony_provider.runtime.checkpoint.model import LocalCheckpoint
from tony_provider.runtime.spec.model import CheckpointFormat

__all__ = ["Broken", "Finder", "Found", "find", "set_aside"]

# In this order: the first that knows a file has it for itself.
_FORMATS: dict[CheckpointFormat, tuple[Callable[[View], Iterable[Finding]], ...]] = {
    CheckpointFormat.MANIFEST: (manifest.find,),
    CheckpointFormat.TENSORFLOW: (tensorflow.find,),
}


@attrs.frozen
class Found:
    complete: list[LocalCheckpoint]  # by step, the highest last; of one step, the last written last
    broken: list[Broken]


class Finder:
    """Looks at one directory again and again; reads only what has changed. From one thread at a time."""

    def __init__(
        self, directory: Path, wanted: CheckpointFormat = CheckpointFormat.AUTO, *, part: bool = False
    ) -> None:
        self.directory = directory
        self._part = part
        self._finders = [
            find for kind, finders in _FORMATS.items() if wanted in (kind, CheckpointFormat.AUTO) for find in finders
        ]
        self._memory = Memory()

    def look(self, now: Optional[float] = None, current_step: int = 0) -> Found:
        """See ``find``."""
        view = look(
            self.directory,
            now=time.time() if now is None else now,
            part=self._part,
            current_step=current_step,
            memory=self._memory,
        )
        stamps = view.files
        found = Found([], [])
        for find in self._finders:
            claimed: set[str] = set()
            for finding in find(view):
                if isinstance(finding, LocalCheckpoint):
                    found.complete.append(finding)
                    claimed.update(finding.files)
                else:
                    claimed.update(finding.paths)
                    if isinstance(finding, Broken):
                        found.broken.append(finding)
            view = view.without(claimed)
        self._memory.forget_unused()
        found.complete.sort(key=lambda one: (one.step, max(stamps[name].mtime_ns for name in one.stamps)))
        return found


def find(
    directory: Path,
    wanted: CheckpointFormat = CheckpointFormat.AUTO,
    *,
    now: Optional[float] = None,
    part: bool = False,
    current_step: int = 0,
) -> Found:
    """The checkpoints in a directory and below it; links are not followed.

    ``now`` (epoch seconds) tells what may still be being written: files that changed within ``view.QUIET`` seconds of
    it and cannot be loaded yet are neither complete nor broken. ``math.inf`` once nobody writes any more.
    ``part`` says that the shards of other ranks may be elsewhere. ``current_step`` is for files that say no step.

    Blocks, and reads what it verifies. Raises OSError when the directory itself cannot be read.
    """
    return Finder(directory, wanted, part=part).look(now, current_step)


def set_aside(directory: Path, broken: Iterable[Broken], aside: Path) -> None:
    """Move what is broken out of the directory, so that no program takes it for a checkpoint. Raises OSError."""
    for one in broken:
        for path in one.paths:
            target = aside / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                (directory / path).replace(target)
            except FileNotFoundError:
                continue

"""Which complete checkpoints a task's directory holds: verified by reading, never by name alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.checkpoint.formats import keras, manifest, orbax, pytorch, tensorflow, torch_directory
from tony_provider.runtime.checkpoint.formats.names import is_temporary
from tony_provider.runtime.checkpoint.formats.view import Broken, Finding, Memory, View, look
from tony_provider.runtime.checkpoint.model import LocalCheckpoint
from tony_provider.runtime.spec.model import CheckpointFormat

__all__ = ["Broken", "Finder", "Found", "find", "set_aside"]

_Find = Callable[[View], Iterable[Finding]]

# In this order: the first that knows a file has it for itself; of two checkpoints of the same step its is preferred.
_FORMATS: tuple[tuple[CheckpointFormat, _Find], ...] = (
    (CheckpointFormat.MANIFEST, manifest.find),
    (CheckpointFormat.KERAS, keras.find_backups),
    (CheckpointFormat.ORBAX, orbax.find),
    (CheckpointFormat.PYTORCH, torch_directory.find),
    (CheckpointFormat.TENSORFLOW, tensorflow.find),
    (CheckpointFormat.PYTORCH, pytorch.find),
    (CheckpointFormat.KERAS, keras.find_files),
)
# A program that uses these goes on from them alone, whatever else it writes.
_EXCLUSIVE = (manifest.find, keras.find_backups)


@attrs.frozen
class Found:
    complete: list[LocalCheckpoint]  # by step, the highest last; of one step, the preferred one last
    broken: list[Broken]


class Finder:
    """Looks at one directory again and again; reads only what has changed. From one thread at a time."""

    def __init__(
        self, directory: Path, wanted: CheckpointFormat = CheckpointFormat.AUTO, *, part: bool = False
    ) -> None:
        self.directory = directory
        self._part = part
        self._finders = [find for kind, find in _FORMATS if wanted in (kind, CheckpointFormat.AUTO)]
        self._memory = Memory()

    def look(self, now: Optional[float] = None, current_step: int = 0) -> Found:
        """See ``find``."""
        whole = look(
            self.directory,
            now=time.time() if now is None else now,
            part=self._part,
            current_step=current_step,
            memory=self._memory,
        )
        complete: list[tuple[tuple[int, int, int], LocalCheckpoint]] = []
        broken: list[Broken] = []
        meant_to_stay = whole.without(name for name in whole.files if any(map(is_temporary, name.split("/"))))
        claimed: set[str] = set()
        for place, find in enumerate(self._finders):
            # Only a manifest may name what has a name for something temporary.
            findings = list(find((whole if find is manifest.find else meant_to_stay).without(claimed)))
            for finding in findings:
                if isinstance(finding, LocalCheckpoint):
                    written = max(whole.files[name].mtime_ns for name in finding.stamps)
                    complete.append(((finding.step, -place, written), finding))
                elif isinstance(finding, Broken):
                    broken.append(finding)
            if findings and find in _EXCLUSIVE:
                break
            claimed.update(name for finding in findings for name in _claimed(finding))
        self._memory.forget_unused()
        return Found([one for _, one in sorted(complete, key=itemgetter(0))], broken)


def _claimed(finding: Finding) -> Iterable[str]:
    return finding.files if isinstance(finding, LocalCheckpoint) else finding.paths


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

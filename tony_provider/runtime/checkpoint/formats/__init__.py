"""Finding the complete checkpoints in a task's directory: verified by reading, never by name alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from posixpath import basename
from typing import Callable, Optional

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint
from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.formats import keras, manifest, numpy, orbax, pytorch, tensorflow, torch_directory
from tony_provider.runtime.checkpoint.formats.directory_view import Broken, Finding, Read, ReadCache, View, look
from tony_provider.runtime.checkpoint.formats.step_names import is_best, is_temporary, step_in
from tony_provider.runtime.spec.model import CheckpointFormat

__all__ = ["Broken", "CheckpointFinder", "FoundCheckpoints", "find", "set_aside"]

log = logging.getLogger(__name__)

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
    (CheckpointFormat.NUMPY, numpy.find),
)
# A program that uses these goes on from them alone, whatever else it writes.
_EXCLUSIVE = (manifest.find, keras.find_backups)
# What programs write for other purposes, too: it counts where nothing else does.
_LAST_RESORT = (numpy.find,)


@attrs.frozen
class FoundCheckpoints:
    """The checkpoints that a directory holds."""

    complete: list[LocalCheckpoint]  # the newest last
    broken: list[Broken]


class CheckpointFinder:
    """Looks at one directory again and again; reads only what has changed. To be used from one thread at a time."""

    def __init__(
        self,
        directory: Path,
        wanted: CheckpointFormat = CheckpointFormat.AUTO,
        *,
        part: bool = False,
        reading: Read = read_here,
    ) -> None:
        self.directory = directory
        self._part = part
        self._finders = [(kind, find) for kind, find in _FORMATS if wanted in (kind, CheckpointFormat.AUTO)]
        self._memory = ReadCache()
        self._reading = reading
        self._faults: set[CheckpointFormat] = set()  # of ours, that are in the log

    def look(self, now: Optional[float] = None, current_step: Optional[int] = None) -> FoundCheckpoints:
        """The checkpoints that the directory holds now. See ``find``."""
        whole = look(
            self.directory,
            now=time.time() if now is None else now,
            part=self._part,
            current_step=current_step,
            memory=self._memory,
            reading=self._reading,
        )
        complete: list[_Candidate] = []
        broken: list[Broken] = []
        meant_to_stay = whole.without(name for name in whole.files if any(map(is_temporary, name.split("/"))))
        claimed: set[str] = set()
        is_found = False  # a checkpoint, or what may become one
        is_writing = False  # a file that is written again and again
        for place, (kind, find) in enumerate(self._finders):
            if is_found and find in _LAST_RESORT:
                break
            # Only a manifest may name what has a name for something temporary.
            view = (whole if find is manifest.find else meant_to_stay).without(claimed)
            findings = self._findings(kind, find, view)
            for finding in findings:
                if isinstance(finding, LocalCheckpoint):
                    complete.append(_Candidate(finding, place))
                elif isinstance(finding, Broken):
                    broken.append(finding)
                else:
                    is_writing = is_writing or (len(finding.paths) == 1 and _is_stepless(finding.paths[0]))
            if findings and find in _EXCLUSIVE:
                break
            is_found = is_found or any(_claimed(finding) for finding in findings)
            claimed.update(name for finding in findings for name in _claimed(finding))
        self._memory.forget_unused()
        return FoundCheckpoints(_with_slots(_by_age(complete), is_writing), broken)

    def _findings(self, kind: CheckpointFormat, find: _Find, view: View) -> list[Finding]:
        try:
            return list(find(view))
        except OSError:
            raise
        except Exception:  # a fault of ours with one format hides nothing of the others
            if kind not in self._faults:
                self._faults.add(kind)
                log.exception("a fault of the look for checkpoints of the format %s", kind.value)
            return []


@attrs.frozen
class _Candidate:
    checkpoint: LocalCheckpoint
    place: int  # of its format in _FORMATS

    @property
    def key(self) -> tuple[int, bool, int, int]:
        """Of two of one step, a copy of the best one so far is hardly what the program goes on from."""
        one = self.checkpoint
        return one.step or 0, not is_best(one.entry), -self.place, one.saved_ns


def _by_age(candidates: list[_Candidate]) -> list[LocalCheckpoint]:
    """The newest last: by the step that files say, or that was reported, else by time; of these kinds, by time."""
    of_kind: dict[tuple[bool, bool], list[_Candidate]] = {}
    for one in sorted(candidates, key=lambda one: one.key):
        of_kind.setdefault((one.checkpoint.step is None, one.checkpoint.reported), []).append(one)
    groups = list(of_kind.values())
    groups.sort(key=lambda group: group[-1].checkpoint.saved_ns)
    return [one.checkpoint for group in groups for one in group]


def _with_slots(checkpoints: list[LocalCheckpoint], is_writing: bool) -> list[LocalCheckpoint]:
    """A program that writes the same files again and again, such as ``model.pt`` and ``optimizer.pt``, or ``last.ckpt``
    and ``best.ckpt``, looks for all of them when it starts again: they make up one checkpoint. Its entry is the newest.
    While one of them is written, there is none.
    """
    if not checkpoints or not _is_slot(checkpoints[-1]):
        return checkpoints
    if is_writing:
        return [one for one in checkpoints if not _is_slot(one)]
    slots = [one for one in checkpoints if _is_slot(one)]
    together = attrs.evolve(
        checkpoints[-1],
        is_slots=True,
        files=tuple(sorted({name for one in slots for name in one.files})),
        stamps={name: stamp for one in slots for name, stamp in one.stamps.items()},
    )
    return [*checkpoints[:-1], together]


def _is_slot(checkpoint: LocalCheckpoint) -> bool:
    """One file, whose name is not that of one step."""
    return checkpoint.files == (checkpoint.entry,) and _is_stepless(checkpoint.entry)


def _is_stepless(path: str) -> bool:
    """Of a checkpoint's file; the file that names TensorFlow's newest is none."""
    name = basename(path)
    return name != tensorflow.STATE_FILE and step_in(name.partition(".")[0]) is None


def _claimed(finding: Finding) -> Iterable[str]:
    return finding.files if isinstance(finding, LocalCheckpoint) else finding.paths


def find(
    directory: Path,
    wanted: CheckpointFormat = CheckpointFormat.AUTO,
    *,
    now: Optional[float] = None,
    part: bool = False,
    current_step: Optional[int] = None,
) -> FoundCheckpoints:
    """The checkpoints in a directory and below it; links are not followed.

    ``now`` (epoch seconds) tells what may still be being written: files that changed within ``view.QUIET`` seconds of
    it and cannot be loaded yet are neither complete nor broken. ``math.inf`` once nobody writes any more.
    ``part`` says that the shards of other ranks may be elsewhere. ``current_step`` is for files that say no step; None
    when the program has reported none.

    Blocks, and reads what it verifies. Raises OSError when the directory itself cannot be read.
    """
    return CheckpointFinder(directory, wanted, part=part).look(now, current_step)


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

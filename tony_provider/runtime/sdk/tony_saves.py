"""What the callbacks for Keras, Lightning and transformers share: who asks for what, and where it is saved."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

AGREE_EVERY = 10  # batches; ranks that train in step tell each other only so often what they are asked for
_KEPT = 2  # checkpoints: the newest, and the one before, which may be under way to the store


@dataclass(frozen=True)
class Asked:
    """What is wanted of this process, or of all ranks."""

    checkpoint: bool = False
    export: bool = False
    stop: bool = False


class Requests:
    """Takes the requests that a callback is to answer; the others are left for the program."""

    def __init__(self, *, checkpoints: bool, exports: bool, stop: bool) -> None:
        self.checkpoints = checkpoints
        self._exports = exports
        self._stop = stop
        self._sdk = importlib.import_module("tony_sdk")

    def listen(self) -> None:
        """From now on a stop is heard of, if it is to be."""
        if self._stop:
            self._sdk.stopping()

    def take(self) -> Asked:
        """What this process is asked for now. A request is taken once; a stop stays."""
        return Asked(
            self.checkpoints and self._sdk.checkpoint_requested(),
            self._exports and self._sdk.export_requested(),
            self._stop and self._sdk.stopping(),
        )


class SavedFiles:
    """Checkpoints of a file each in the checkpoint directory: whole at once, and the older ones removed."""

    def __init__(self, pattern: str) -> None:
        """``pattern`` is the name of one, with ``{step}`` in it."""
        self._pattern = pattern
        self._saved: list[Path] = []
        self._sdk = importlib.import_module("tony_sdk")

    @contextmanager
    def one(self, step: int, *, keep: bool) -> Iterator[str]:
        """A path to save the checkpoint of a step at. Without ``keep``, and outside a job, it is thrown away."""
        directory = self._sdk.checkpoint_dir()
        name = self._pattern.format(step=step)
        aside = tempfile.mkdtemp(prefix="checkpoint-")
        try:
            path = Path(aside, name)
            yield str(path)
            if keep and directory is not None and path.exists():
                self._put(path, Path(directory, name))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _put(self, path: Path, target: Path) -> None:
        partly = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        shutil.move(str(path), str(partly))  # which copies, where it is another file system
        partly.replace(target)
        self._saved = [*(each for each in self._saved if each != target), target]
        while len(self._saved) > _KEPT:
            self._saved.pop(0).unlink(missing_ok=True)

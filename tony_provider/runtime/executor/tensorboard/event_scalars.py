"""The newest scalars of the event files that a user process writes, read as they grow."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.event_files.event_file_mirror import is_event_file
from tony_provider.runtime.executor.progress_reports import LARGEST_STEP, SpeedMeter
from tony_provider.runtime.executor.tensorboard.event_files import FoundEventFiles, below
from tony_provider.runtime.executor.tensorboard.event_records import (
    FOOTER,
    HEADER,
    NotAnEventError,
    Scalar,
    length_of,
    scalars,
)
from tony_provider.runtime.executor.tensorboard.run_names import run_name
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import MOST_METRICS, is_metric_name

log = logging.getLogger(__name__)

_BYTES_AT_ONCE = 1 << 20  # for each look: some ten thousand scalars, a fifth of a second of work
_LARGEST = 64 << 10  # bytes of a record; larger ones are pictures, graphs and the like
_MOST_FILES = 50


@attrs.define
class _EventFile:
    """One event file, and how far it was read."""

    path: Path
    offset: int
    inode: Optional[int] = None  # None: not opened yet
    given_up: bool = False

    def read(self, most: int) -> tuple[list[bytes], int]:
        """The next whole records without the large ones, and how many bytes were read: about ``most``.

        Raises NotAnEventError, OSError.
        """
        records = []
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotAnEventError("it is no regular file")
            if self.inode not in (None, status.st_ino) or status.st_size < self.offset:
                self.offset = 0  # another file, or written anew
            self.inode = status.st_ino
            spent = 0
            while spent < most and self.offset + HEADER <= status.st_size:
                file.seek(self.offset)
                length = length_of(file.read(HEADER))
                behind = self.offset + HEADER + length + FOOTER
                if behind > status.st_size:
                    break  # its end is still to come
                spent += HEADER
                if length <= _LARGEST:
                    records.append(file.read(length))
                    spent += length
                self.offset = behind
        return records, spent


class EventScalars:
    """What the event files of one user process say of its progress: the highest step, and the newest of each scalar."""

    def __init__(self, directory: Path, others: Collection[Path] = ()) -> None:
        """What lies in ``directory`` by now is a former process's; ``others`` are directories below it not to read.

        Blocks.
        """
        self._directory = directory
        self._others = tuple(others)
        self._files: dict[str, _EventFile] = {}
        self._scalars: set[str] = set()  # names that were once said to be of the plugin
        self._metrics: dict[str, float] = {}
        self._step: Optional[int] = None
        self._speed = SpeedMeter()
        self._former = {found.name: found.size for found in self._found()}

    def look(self, now: float) -> Optional[tony_pb2.Progress]:
        """Read what is new; None while there was nothing. ``now`` in seconds of any steady clock. Blocks."""
        self._find()
        left = _BYTES_AT_ONCE
        for name, file in self._files.items():
            if left > 0 and not file.given_up:
                left -= self._read(name, file, left)
        if self._step is None:
            return None
        self._speed.add(now, self._step)
        return tony_pb2.Progress(step=self._step, steps_per_second=self._speed.speed(now), metrics=dict(self._metrics))

    def _find(self) -> None:
        """Files that are new, or have grown since this was made."""
        for found in self._found():
            if len(self._files) >= _MOST_FILES:
                return
            former = self._former.get(found.name, 0)
            if found.name not in self._files and found.size != former:
                self._files[found.name] = _EventFile(found.path, former)

    def _found(self) -> Iterator[FoundEventFiles]:
        return (
            found for found in below(self._directory) if is_event_file(found.name) and not self._is_others(found.path)
        )

    def _is_others(self, path: Path) -> bool:
        return any(other in path.parents for other in self._others)

    def _read(self, name: str, file: _EventFile, most: int) -> int:
        """Returns how many bytes were read."""
        try:
            records, spent = file.read(most)
            for record in records:
                for scalar in scalars(record):
                    self._take(run_name(name.rpartition("/")[0]), scalar)
        except (NotAnEventError, OSError) as error:
            file.given_up = True
            log.warning("the scalars of %s are not read any further: %s", file.path, error)
            return 0
        return spent

    def _take(self, run: str, scalar: Scalar) -> None:
        name = f"{run}/{scalar.tag}" if run else scalar.tag
        known = name in self._scalars
        if not (known or scalar.of_plugin) or not is_metric_name(name):
            return
        if 0 <= scalar.step <= LARGEST_STEP:
            self._step = max(self._step or 0, scalar.step)
        if known or len(self._scalars) < MOST_METRICS:
            self._scalars.add(name)
            self._metrics[name] = scalar.value

"""Reading the series of an application: all its segments, as far as they go."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.history.segment_files import contents, listed
from tony_provider.runtime.history.segments import SegmentHeader, read_segment, segment_order
from tony_provider.runtime.history.task_sample import TaskSample
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound
from tony_provider.runtime.text import replaced

_MOST_BYTES = 32 << 20  # of all segments: several times what an application master writes
_MOST_FILES = 5000  # segments
_MOST_TEXT = 128 << 20  # bytes of their text
_MOST_OF_ONE = 64 << 20  # bytes of one segment's text
_NAMED, _LONGEST_NAME = 10, 100  # metrics that were left out, and characters of each
_MOST_SAMPLES = 300_000  # of all segments: as many as fit into what an application master writes


def read_samples(storage: Storage, application_dir: str, missing: list[str]) -> list[TaskSample]:
    """The samples of all tasks, in the order in which they were taken. Adds to ``missing`` what is not there, and why.

    Where the clock of one application master's node is behind that of the one before it, times go back there.
    Blocks. Raises StorageError when the store cannot be asked.
    """
    files = _files(storage, uris.join(application_dir, contract.HISTORY_DIR), missing)
    samples: dict[int, list[TaskSample]] = {}  # by attempt of the application master, whose own times never go back
    taken = 0
    text = 0
    newest: dict[int, SegmentHeader] = {}  # of each application master, which counts what it has left out
    for file, data in zip(files, contents(storage, [each.status for each in files]), strict=True):
        if isinstance(data, StorageError):
            why = "it was removed meanwhile" if isinstance(data, StorageNotFound) else data
            missing.append(f"series: {file.status.name}: {why}")
            continue
        if text >= _MOST_TEXT or taken >= _MOST_SAMPLES:
            missing.append(f"series: what comes from {file.status.name} on is too much, and is not read")
            break
        most_bytes = min(_MOST_OF_ONE, _MOST_TEXT - text)
        segment = read_segment(data, most_bytes=most_bytes, most_samples=_MOST_SAMPLES - taken)
        missing += [f"series: {file.status.name}: {problem}" for problem in segment.problems]
        newest[file.am_attempt] = segment.header
        samples.setdefault(file.am_attempt, []).extend(segment.samples)
        taken, text = taken + len(segment.samples), text + segment.size
    missing += _left_out(newest.values())
    return [each for of_master in samples.values() for each in sorted(of_master, key=lambda sample: sample.time_ms)]


@attrs.frozen(order=True)
class _SegmentFile:
    am_attempt: int
    number: int
    status: FileStatus = attrs.field(order=False)


def _files(storage: Storage, directory: str, missing: list[str]) -> list[_SegmentFile]:
    """Those that are to be read, oldest first."""
    found = listed(storage, directory)
    files = sorted(_SegmentFile(*order, each) for each in found if (order := segment_order(each.name)))
    if not files:
        missing.append("series: no segment is there (yet)")
    missing += _gaps(files)
    total = 0
    for at, file in enumerate(files):
        total += file.status.size
        if total > _MOST_BYTES or at == _MOST_FILES:
            left = count(len(files) - at, "segment")
            most = f"{size(_MOST_BYTES)} of at most {_MOST_FILES} segments"
            missing.append(f"series: {left} from {file.status.name} on: only {most} are read")
            return files[:at]
    return files


def _gaps(files: Iterable[_SegmentFile]) -> list[str]:
    """Segments that should be there, by the numbers of those that are."""
    numbers: dict[int, list[int]] = {}
    for file in files:
        numbers.setdefault(file.am_attempt, []).append(file.number)
    return [
        f"series: {count(lost, 'segment')} of attempt {am_attempt} of the application master are not there"
        for am_attempt, found in numbers.items()
        if (lost := max(found) - len(found)) > 0
    ]


def _left_out(headers: Iterable[SegmentHeader]) -> list[str]:
    said = []
    for header in headers:
        if header.samples_left_out:
            said.append(f"series: {count(header.samples_left_out, 'sample')} were left out when they were written")
        if header.metrics_left_out:
            names = ", ".join(replaced(name[:_LONGEST_NAME]) for name in header.such_as[:_NAMED])
            said.append(f"series: {count(header.metrics_left_out, 'metric')} too many were left out, such as {names}")
    return said

"""Reading the series of an application: all its segments, as far as they go."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.history.segments import Segment, SegmentHeader, read_segment, segment_order
from tony_provider.runtime.history.task_sample import TaskSample
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageNotADirectory, StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes

_MOST_BYTES = 64 << 20  # of all segments: several times what an application master writes
_MOST_TEXT = 64 << 20  # bytes of one segment's text
_MOST_SAMPLES = 500_000  # of all segments
_AT_ONCE = 8  # segments that are asked for at a time: a store takes its time for each, not for its bytes


def read_samples(storage: Storage, application_dir: str, missing: list[str]) -> list[TaskSample]:
    """The samples of all tasks, oldest first. Adds to ``missing`` what is not there, and why.

    Blocks. Raises StorageError when the store cannot be asked.
    """
    files = _files(storage, uris.join(application_dir, contract.HISTORY_DIR), missing)
    samples: list[TaskSample] = []
    newest: dict[int, SegmentHeader] = {}  # of each application master, which counts what it has left out
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tony-history") as pool:
        segments = pool.map(lambda file: _read(storage, file), files)
        for file, segment in zip(files, segments, strict=True):
            missing += [f"series: {file.status.name}: {problem}" for problem in segment.problems]
            newest[file.am_attempt] = segment.header
            samples += segment.samples
            if len(samples) > _MOST_SAMPLES:
                missing.append(f"series: what comes after {_MOST_SAMPLES} samples is not read")
                pool.shutdown(cancel_futures=True)
                break
    missing += _left_out(newest.values())
    return sorted(samples[:_MOST_SAMPLES], key=lambda sample: sample.time_ms)


@attrs.frozen(order=True)
class _SegmentFile:
    am_attempt: int
    number: int
    status: FileStatus = attrs.field(order=False)


def _files(storage: Storage, directory: str, missing: list[str]) -> list[_SegmentFile]:
    """Those that are to be read, oldest first."""
    try:
        listed = storage.list(directory)
    except (StorageNotFound, StorageNotADirectory):
        listed = []
    files = sorted(
        _SegmentFile(*order, each) for each in listed if (order := segment_order(each.name)) and not each.is_directory
    )
    if not files:
        missing.append("series: no segment is there (yet)")
    missing += _gaps(files)
    total = 0
    for at, file in enumerate(files):
        total += file.status.size
        if total > _MOST_BYTES:
            left = count(len(files) - at, "segment")
            missing.append(f"series: {left} from {file.status.name} on: only {size(_MOST_BYTES)} are read")
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


def _read(storage: Storage, file: _SegmentFile) -> Segment:
    try:
        return read_segment(read_bytes(storage, file.status.path, length=_MOST_BYTES), most_bytes=_MOST_TEXT)
    except StorageNotFound:
        return Segment(SegmentHeader(), [], ["it was removed meanwhile"])


def _left_out(headers: Iterable[SegmentHeader]) -> list[str]:
    said = []
    for header in headers:
        if header.samples_left_out:
            said.append(f"series: {count(header.samples_left_out, 'sample')} were left out when they were written")
        if header.metrics_left_out:
            names = ", ".join(header.such_as)
            said.append(f"series: {count(header.metrics_left_out, 'metric')} too many were left out, such as {names}")
    return said

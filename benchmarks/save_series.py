"""Series of saves of one program: bytes that each save uploads, local disk, and the time to restore the last one."""

from __future__ import annotations

import os
import shutil
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks import copier, program
from benchmarks.report import OURS, Figure
from tests.hadoop.cluster import HadoopCluster
from tony_provider.runtime.artifacts.upload import ArtifactUpload, Throttle
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    Manifest,
    RankTree,
    StoredCheckpoint,
    directory_name,
    objects_directory,
)
from tony_provider.runtime.executor.start_context import ExecutorContext
from tony_provider.runtime.storage import FileStatus, StorageNotFound, uris

MIB = 1 << 20
_SAMPLE = 0.25  # seconds between two measurements of the disk

Save = Callable[[Path, int], None]  # into the directory, and the number of the save


@attrs.frozen
class Series:
    """A program that saves again and again."""

    name: str
    saves: int
    save: Save


def series(mebibytes: int, small_files: int) -> list[Series]:
    """Return the programs. ``mebibytes`` is the size of a large checkpoint."""

    def overwrite(directory: Path, _: int) -> None:
        fill(directory / "last.pt", mebibytes)

    def rotate(directory: Path, number: int) -> None:
        fill(directory / f"step-{number}.pt", mebibytes)
        (directory / f"step-{number - 3}.pt").unlink(missing_ok=True)

    def add(directory: Path, number: int) -> None:
        fill(directory / f"step-{number}.pt", mebibytes // 4)

    def small(directory: Path, number: int) -> None:
        """Write all files at first, then each 50th."""
        for each in range(0, small_files, 50 if number > 1 else 1):
            (directory / f"{each % 100:02d}").mkdir(exist_ok=True)
            (directory / f"{each % 100:02d}" / f"{each}.bin").write_bytes(os.urandom(4096))

    size = "1 GiB" if mebibytes == 1024 else f"{mebibytes} MiB"
    return [
        Series(f"one file of {size}, overwritten", 3, overwrite),
        Series(f"three checkpoints of {size}, rotated", 5, rotate),
        Series(f"a program that never deletes, {mebibytes // 4} MiB each", 5, add),
        Series(f"{small_files:,} files of 4 KiB, then each 50th", 3, small),
    ]


def measure(
    cluster: HadoopCluster, home: Path, target: str, mebibytes: int = 1024, small_files: int = 50_000
) -> Iterator[Figure]:
    for number, each in enumerate(series(mebibytes, small_files)):
        place = home / f"series-{number}"
        given = Namespace(place=place, namenode=cluster.webhdfs[0], target=f"{target}/{number}", rank=0)
        yield from _measured(each, copier.context_of(given), home / f"other-{number}")
        shutil.rmtree(place)


def _measured(each: Series, context: ExecutorContext, other: Path) -> Iterator[Figure]:
    uploaded: list[float] = []
    seconds: list[float] = []
    disk: list[float] = []
    catalog = Catalog(context.storage, context.container.description.chain_dir or "")
    stored: StoredCheckpoint | None = None
    context.checkpoints.begin(1, [0], alone=True)
    for number in range(1, each.saves + 1):
        each.save(context.checkpoints.path, number)
        with _peak(context.workspace.root, context.checkpoints.path) as peak:
            began = time.monotonic()
            stored, sent = store(context, catalog, number)
            seconds.append(time.monotonic() - began)
        catalog.prune(2)
        uploaded.append(sent / MIB)
        disk.append(max(peak) / MIB)
        program.progress(f"{each.name}, save {number}: {uploaded[-1]:.1f} MiB in {seconds[-1]:.2f} s")
    assert stored is not None
    yield Figure(f"uploaded by each save, {each.name}", OURS, "MiB", uploaded)
    yield Figure(f"seconds of each save, {each.name}", OURS, "s", seconds)
    yield Figure(f"local disk beyond the directory, {each.name}", OURS, "MiB", disk)
    for where in ("the same container", "another container"):
        began = time.monotonic()
        context.checkpoints.restore(stored.point, 0, threading.Event())
        yield Figure(f"restored in {where}, {each.name}", OURS, "s", [time.monotonic() - began])
        shutil.rmtree(context.checkpoints.path)
        context.checkpoints.path.mkdir()
    context.storage.close()


def store(context: ExecutorContext, catalog: Catalog, number: int) -> tuple[StoredCheckpoint, int]:
    """Upload and commit the directory. Return the checkpoint and the bytes of new objects."""
    directory = context.checkpoints
    state = directory.inspect(ended=True, succeeded=True)
    assert state.ready, state
    name = directory_name(number)
    upload = ArtifactUpload(context.storage, objects_directory(catalog.chain_uri), name[len("save-") :], Throttle(None))
    before = {status.name for status in _objects(context, catalog)}
    snapshot = directory.snapshot(state.version, (), upload, None)
    sent = sum(status.size for status in _objects(context, catalog) if status.name not in before)
    manifest = Manifest(save=number, step=None, trees=[RankTree(0, snapshot.uploaded.tree)], saved_ms=snapshot.saved_ms)
    stored = catalog.commit(uris.join(catalog.uri, name), manifest)
    directory.committed(snapshot, stored.point)
    return stored, sent


def _objects(context: ExecutorContext, catalog: Catalog) -> list[FileStatus]:
    try:
        return list(context.storage.list(catalog.objects_uri))
    except StorageNotFound:
        return []


@contextmanager
def _peak(root: Path, directory: Path) -> Iterator[list[int]]:
    """Measure the bytes that files below ``root`` take which the checkpoint directory does not have, too."""
    found, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE):
            shared = _inodes(directory)
            found.append(sum(size for inode, size in _inodes(root).items() if inode not in shared))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _inodes(root: Path) -> dict[int, int]:
    found = {}
    for place, _, names in os.walk(root):
        for name in names:
            try:
                status = Path(place, name).lstat()
            except FileNotFoundError:
                continue
            found[status.st_ino] = status.st_size
    return found


def fill(path: Path, mebibytes: int) -> None:
    block = os.urandom(MIB)
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("wb") as stream:
        for number in range(mebibytes):
            stream.write(number.to_bytes(8, "big") + block[8:])
    draft.replace(path)

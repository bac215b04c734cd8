"""Copies of shards on the node of their task, for programs that cannot read the store themselves."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor import disk
from tony_provider.runtime.executor.preparation import wait_for_store
from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.storage import StorageNotFound, uris
from tony_provider.runtime.storage.base import CHUNK

log = logging.getLogger(__name__)

_AT_ONCE = 4  # files in transfer


class ShardChangedError(Exception):
    """What is on the store is not what was listed: another try finds the same."""


class FetchedShards:
    """The copies that one start of a task has. A copy keeps its file's name, in a directory of its own."""

    def __init__(self, stores: InputStores, directory: Path) -> None:
        self._stores = stores
        self._directory = directory
        self._cancelled = threading.Event()

    def copy(self, name: str, number: int, shard: InputShard) -> Path:
        """Copy one shard of an input; a file of the node itself is left where it is.

        Blocks, also while the store is out of reach. Raises ShardChangedError, StorageError, OSError, Cancelled.
        """
        path = self._place(name, str(number), shard)
        if path.exists():
            return path
        self._check_room(shard.size)
        self._fetch(shard, path)
        return path

    def remove(self, name: str, number: int) -> None:
        """Remove the copy of one shard. Blocks shortly."""
        shutil.rmtree(self._directory / name / str(number), ignore_errors=True)

    def copy_part(self, name: str, part: Path) -> None:
        """Copy all shards whose lines are in the file ``part``, and write into each line the path of its copy.

        What a former start has copied is used again. Blocks, see ``copy``, and raises what it does.
        """
        lines = [json.loads(line) for line in part.read_bytes().splitlines()]
        shards = [InputShard.of_line(json.dumps(line).encode()) for line in lines]
        paths = [self._place(name, _key(shard), shard) for shard in shards]
        missing = {path: shard for path, shard in zip(paths, shards) if not path.exists()}
        self._remove_others(name, paths)
        self._check_room(sum(shard.size for shard in missing.values()))
        self._fetch_all(missing)
        written = [{**line, "path": str(path)} for line, path in zip(lines, paths)]
        part.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written), encoding="utf-8")

    def cancel(self) -> None:
        """Have whoever copies end soon, with Cancelled."""
        self._cancelled.set()

    def _place(self, name: str, mark: str, shard: InputShard) -> Path:
        if uris.scheme(shard.uri) == "file":
            return Path(uris.parse(shard.uri).path)
        return self._directory / name / mark / (uris.name(shard.uri) or "shard")

    def _remove_others(self, name: str, paths: Sequence[Path]) -> None:
        """Of a former start, which had other shards."""
        wanted = {path.parent.name for path in paths}
        directory = self._directory / name
        for each in directory.iterdir() if directory.exists() else ():
            if each.name not in wanted:
                shutil.rmtree(each, ignore_errors=True)

    def _check_room(self, size: int) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if problem := disk.crowded(self._directory, size):
            raise OSError(f"{problem}, and {size} bytes are to be copied")

    def _fetch_all(self, missing: dict[Path, InputShard]) -> None:
        ordered = sorted(missing.items(), key=lambda each: -each[1].size)  # so that no large one is alone at the end
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="shards") as pool:
            copying = [pool.submit(self._fetch, shard, path) for path, shard in ordered]
            done, rest = wait(copying, return_when=FIRST_EXCEPTION)
            for future in rest:
                future.cancel()
        for future in done:
            future.result()

    def _fetch(self, shard: InputShard, path: Path) -> None:
        if path.exists():
            return
        try:
            wait_for_store(partial(self._download, shard, path), self._cancelled)
        except StorageNotFound as error:
            raise ShardChangedError(f"{shard.uri} was listed, and is not there any more") from error

    def _download(self, shard: InputShard, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        arriving = path.parent / ".part"
        size = 0
        with self._stores.of(shard.uri).open_read(shard.uri) as source, arriving.open("wb") as target:
            while chunk := source.read(CHUNK):
                if self._cancelled.is_set():
                    raise Cancelled(f"copying {shard.uri} was cancelled")
                target.write(chunk)
                size += len(chunk)
        if size != shard.size:
            raise ShardChangedError(f"{shard.uri} has changed since it was listed")
        arriving.rename(path)


def _key(shard: InputShard) -> str:
    """Of a copy that the next start may have again: the same file, as it was listed."""
    return hashlib.sha256(f"{shard.uri}\n{shard.size}\n{shard.modified_ms}".encode()).hexdigest()[:16]

"""The upload of a snapshot of a checkpoint: several files at once, each summed up while it is read."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import BinaryIO, cast

from tony_provider.runtime.artifacts.checksum import SummedFile
from tony_provider.runtime.artifacts.throttle import Throttle
from tony_provider.runtime.checkpoint.checkpoint_model import stored_path
from tony_provider.runtime.checkpoint.snapshot import Snapshot, SnapshotFile
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import Storage, uris

AT_ONCE = 4  # large files; each holds some storage.base.CHUNK of memory
SMALL_AT_ONCE = 32  # HDFS often takes 0.4 s for the end of a file, in which nothing else is to be done for it
SMALL = 256 << 10  # bytes at most


class Upload:
    """One upload. ``run`` it once, in a thread. ``cancel`` may come from another."""

    def __init__(self, storage: Storage, throttle: Throttle) -> None:
        self._storage = storage
        self._throttle = throttle
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Send no more bytes from soon on; a server that is silent is waited for by the threads themselves."""
        self._cancelled.set()

    def run(self, snapshot: Snapshot, directory: str, *, overwrite: bool) -> list[tony_pb2.CheckpointFile]:
        """Copy all files below ``directory``, a URI. Blocks.

        Without ``overwrite`` whatever is there already is somebody else's. Raises SnapshotChanged when a file was
        changed meanwhile, StorageError, OSError, Cancelled.
        """
        largest_first = sorted(snapshot.files, key=lambda file: -file.size)
        with ThreadPoolExecutor(AT_ONCE, "mirror") as pool, ThreadPoolExecutor(SMALL_AT_ONCE, "mirror") as small:
            sending = [
                (small if file.size <= SMALL else pool).submit(self._send, file, directory, overwrite)
                for file in largest_first
            ]
            self._first_failure_ends_all(sending)
        snapshot.check()
        return sorted((future.result() for future in sending), key=lambda file: file.path)

    def _first_failure_ends_all(self, sending: list[Future[tony_pb2.CheckpointFile]]) -> None:
        done, rest = wait(sending, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        failed = [error for error in (future.exception() for future in done) if error is not None]
        if failed:
            self.cancel()
            raise failed[0]

    def _send(self, file: SnapshotFile, directory: str, overwrite: bool) -> tony_pb2.CheckpointFile:
        with file.local.open("rb", buffering=0) as opened:
            source = _Paced(opened, self._throttle, self._cancelled)
            self._storage.write(
                uris.join(directory, stored_path(file.path)), cast(BinaryIO, source), overwrite=overwrite
            )
        return tony_pb2.CheckpointFile(path=file.path, size=source.size, checksum=source.text)


class _Paced(SummedFile):
    def __init__(self, file: BinaryIO, throttle: Throttle, cancelled: threading.Event) -> None:
        super().__init__(file)
        self._throttle = throttle
        self._cancelled = cancelled

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        self._throttle.take(len(data), self._cancelled)
        return data

"""Table of the readers of checkpoint files, and the reader for manifests that programs write for their saves.

A program can write a manifest for a save in any format. ``save_formats.find_manifests`` evaluates the manifests.

As a program, the module reads files for another process, with limits on memory and time. Standard input is a socket for
requests and answers, each a line of JSON. A request names one of ``READERS``: ``{"reader": "torch", "path": "/…",
"seconds": 30}``. The answer has ``value``, or ``unreadable`` with the reason, or ``errno`` and ``strerror``. If a
request needs more than ``seconds`` of processor time, the kernel kills the process. The process also ends if the client
closes the socket, or sends no request for a while.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable, Optional

import attrs

from tony_provider.runtime.artifacts.manifest import ALGORITHMS, file_checksum, is_inside
from tony_provider.runtime.checkpoint.content import array_files, tensorflow_files, torch_files, zips
from tony_provider.runtime.checkpoint.content.zips import Unreadable, is_count, json_object
from tony_provider.runtime.common import helper_processes

_MOST_BYTES = 64 << 20

File = tuple[str, int, Optional[str]]  # path below the manifest's directory, size in bytes, checksum or None
ProgramManifest = tuple[int, str, list[File]]  # step; entry (the path to load); files of the save


def read_program_manifest(path: Path) -> ProgramManifest:
    """Return the content of a program's manifest. Raises Unreadable, OSError."""
    plain = json_object(path, _MOST_BYTES)
    try:
        step, entry, listed = plain["step"], plain["entry"], plain["files"]
        files = [(each["path"], each["size"], each.get("checksum")) for each in listed]
    except (TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"it is not a manifest of a checkpoint ({error!r})") from error
    if not is_count(step):
        raise Unreadable("its step is not a whole number of at least 0")
    if not files:
        raise Unreadable("it lists no files")
    return int(step), _inside(entry), [_file(*each) for each in files]


def _file(path: Any, size: Any, sum_: Any) -> File:
    if not is_count(size):
        raise Unreadable("the size of a file in it is not a number")
    if sum_ is not None and not isinstance(sum_, str):
        raise Unreadable("the checksum of a file in it is not text")
    return _inside(path), int(size), sum_


def _inside(path: Any) -> str:
    if not isinstance(path, str) or not is_inside(path):
        raise Unreadable(f"{str(path)[:200]!r} is not a path below the directory")
    return path


READERS: Mapping[str, Callable[[Path], Any]] = {
    "array": array_files.orbax_pieces,
    "bundle": tensorflow_files.read_bundle_index,
    "database": array_files.check_orbax_database,
    "ends": torch_files.shard_ends,
    "epoch": tensorflow_files.keras_epoch,
    "hdf5": tensorflow_files.check_hdf5,
    "keras": tensorflow_files.check_keras_archive,
    "manifest": read_program_manifest,
    "npy": array_files.check_npy,
    "npz": array_files.read_npz,
    "shards": torch_files.index_shards,
    "step": array_files.is_orbax_committed,
    "torch": lambda path: attrs.astuple(torch_files.read_torch_file(path)),
    "trainer": torch_files.global_step,
    "tree": array_files.orbax_arrays,
    "zip": zips.check_any_zip,
    **{f"checksum {algorithm}": partial(file_checksum, algorithm=algorithm) for algorithm in ALGORITHMS},
}


def read_here(reader: str, path: Path) -> Any:
    """Run a reader for a file in this process, and return its result. Raises Unreadable, OSError.

    All other exceptions of the reader become Unreadable, so that the caller can continue with other files.
    """
    try:
        return READERS[reader](path)
    except (Unreadable, OSError):
        raise
    except MemoryError as error:
        raise Unreadable("reading it needs too much memory") from error
    except Exception as error:
        raise Unreadable(f"it cannot be read: {type(error).__name__}: {error}") from error


MEMORY = 1 << 30  # limit of the address space in bytes
_IDLE = 15.0  # seconds without a request after which the process ends
_MOST_ANSWER = 16 << 20  # size limit of an answer in bytes


def main() -> None:
    """Serve requests from standard input until it is closed or idle."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the client may still need this process when a container ends
    helper_processes.limit_memory(MEMORY)
    with socket.socket(fileno=0) as asking:
        serve(asking)


def serve(asking: socket.socket) -> None:
    """Answer each request, one after the other."""
    asking.settimeout(_IDLE)
    requests = asking.makefile("rb")
    while line := _next(requests):
        request = json.loads(line)
        helper_processes.limit_time(request["seconds"])
        asking.settimeout(None)  # the client may read a long answer slowly
        asking.sendall(_answer(request["reader"], request["path"]) + b"\n")
        asking.settimeout(_IDLE)


def _next(requests: BinaryIO) -> bytes:
    try:
        return requests.readline()
    except OSError:  # no request for a while, or the client has ended
        return b""


def _answer(reader: str, path: str) -> bytes:
    answer: dict[str, Any]
    try:
        answer = {"value": read_here(reader, Path(path))}
    except Unreadable as error:
        answer = {"unreadable": str(error)[:1000]}
    except OSError as error:
        answer = {"errno": error.errno, "strerror": error.strerror or type(error).__name__}
    try:
        encoded = json.dumps(answer, separators=(",", ":")).encode()
        if len(encoded) <= _MOST_ANSWER:
            return encoded
    except MemoryError:
        encoded = b""
    return json.dumps({"unreadable": "its content is too large"}).encode()


if __name__ == "__main__":
    main()

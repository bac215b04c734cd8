"""Unpacked archives, shared between containers of one machine. All functions and methods block."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime import limited_process
from tony_provider.runtime.application import LocalAccess, LocalizedResource
from tony_provider.runtime.file_lock import locked
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.local.unpacking import LONGEST_WORD, SECONDS, ArchiveError
from tony_provider.runtime.storage import local_path

_PROGRAM = "tony_provider.runtime.local.unpacking"
_MORE_SECONDS = 60.0  # that a container waits for another one to give up


@attrs.frozen
class ArchiveCache:
    """Unpacks archives, each once.

    Those of one application go with it; others, such as the runtime, stay for the next.
    """

    shared: Path
    private: Path
    owns: Callable[[LocalizedResource], bool]  # whether it is the application's own

    def unpacked(self, resource: LocalizedResource) -> Path:
        """The directory with what is in the archive; not to be written to.

        Raises ArchiveError, also when another container takes more than SECONDS to unpack the same.
        """
        root = self.private if self.owns(resource) else self.shared
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = name_of(resource)
        target = root / key
        try:
            with locked(root / f"{key}.lock", SECONDS + _MORE_SECONDS):
                if not target.exists():
                    _unpack_aside(local_path(resource.uri), target)
        except TimeoutError as error:
            raise ArchiveError(f"cannot unpack {resource.uri}: {error}") from error
        return target


def name_of(resource: LocalizedResource) -> str:
    """What the directory with an archive's content is called: a file that has changed has another."""
    return hashlib.sha256(f"{resource.uri} {resource.size} {resource.modified_ms}".encode()).hexdigest()[:32]


def shared_cache(access: LocalAccess) -> Path:
    """The directory where the local cluster keeps unpacked archives for all its applications."""
    return Path(access.root).parent / "unpacked"


def _unpack_aside(archive: Path, target: Path) -> None:
    """The target appears whole or not at all."""
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        problem = _unpacked_apart(archive, partial)
        if problem:
            raise ArchiveError(f"cannot unpack {archive}: {problem}")
        partial.rename(target)
    except OSError as error:
        raise ArchiveError(f"cannot unpack {archive}: {error}") from error
    finally:
        remove_tree(partial)


def _unpacked_apart(archive: Path, directory: Path) -> str:
    """Unpack in a process of its own, which is held to limits; why it cannot be done, else nothing. Raises OSError."""
    with subprocess.Popen(
        limited_process.command(_PROGRAM, str(archive.absolute()), str(directory.absolute())),
        stdin=subprocess.PIPE,  # with which it ends
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=limited_process.environment(),
    ) as process:
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"it takes more than {SECONDS} s"
        finally:
            process.kill()
        said = process.stdout.read(4 * LONGEST_WORD).decode("utf-8", "replace") if process.stdout else ""
    if code in (0, 1):
        return said
    return f"it was given up, as its process has ended ({code}): it takes too much time or memory"

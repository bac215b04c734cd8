"""The local directory of one output, as one start of the user process fills it, and its part on the store."""

from __future__ import annotations

import threading
from pathlib import Path

import attrs

from tony_provider.runtime.executor.tree_upload import TreeUpload, walk_local
from tony_provider.runtime.outputs.output_place import DATA_DIRECTORY, DATA_FILE
from tony_provider.runtime.storage import Storage, uris


@attrs.define(eq=False)
class OutputDirectory:
    """Copies files of a local directory to a part of an output. All methods block, and raise StorageError, OSError.

    Files are known by their paths in the directory. A file that a committed shard names stays as it was copied then.
    """

    name: str  # of the output
    path: Path
    storage: Storage
    part: str  # URI
    cancelled: threading.Event
    committed: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes
    _copied: dict[str, int] = attrs.field(factory=dict)  # for commits that were not made (yet)
    _refused: set[str] = attrs.field(factory=set)  # of those, what is not to count

    @property
    def _upload(self) -> TreeUpload:
        return TreeUpload(self.storage, self.cancelled, DATA_FILE, DATA_DIRECTORY, overwrite=True)

    def files_at(self, path: Path) -> list[str]:
        """The files that a path in the directory names: itself, or all below it."""
        top = self.path.resolve()
        found = [each for each, _ in walk_local(path) if each.is_file()] if path.is_dir() else [path]
        return [each.resolve().relative_to(top).as_posix() for each in found]

    def holds(self, path: Path) -> bool:
        """Whether a path lies in the directory."""
        return self.path.resolve() in path.resolve().parents

    def copy(self, file: str) -> str:
        """Copy a file for a commit that is about to be asked for; returns its URI."""
        uri = uris.join(self.part, file)
        self._copied[file] = 0  # from now on something may be there
        self.storage.make_directories(uris.parent(uri), permission=DATA_DIRECTORY)
        self._copied[file] = self._upload.send(self.path / file, uri)
        self._refused.discard(file)
        return uri

    def settle(self, file: str, *, committed: bool) -> None:
        """Take note whether the commit was made that the file was copied for."""
        if committed:
            self.committed[file] = self._copied.pop(file, self.committed.get(file, 0))
        else:
            self._refused.add(file)

    def copy_rest(self) -> tuple[int, int]:
        """Have the part be what the directory holds now, but for what was refused; returns its files, and bytes."""
        for file in list(self._copied):
            if file in self._refused or not (self.path / file).exists():
                self.storage.remove(uris.join(self.part, file))
        files, size = self._upload.run(self.path, self.part, self._is_wanted)
        return files + len(self.committed), size + sum(self.committed.values())

    def _is_wanted(self, file: str) -> bool:
        return file not in self.committed and file not in self._refused

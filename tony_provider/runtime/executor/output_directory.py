"""The local directory of one output, as one start of the user process fills it, and its part on the store."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.executor.tree_upload import TreeUpload, stored_path, walk_local
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
    warn: Callable[[str], None]
    committed: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes
    _copied: dict[str, int] = attrs.field(factory=dict)  # for commits that were not made (yet)
    _refused: set[str] = attrs.field(factory=set)  # of those, what is not to count

    @property
    def _upload(self) -> TreeUpload:
        return TreeUpload(self.storage, self.cancelled, self.warn, DATA_FILE, DATA_DIRECTORY, overwrite=True)

    def name_of(self, path: Path) -> Optional[str]:
        """What a path is called in the directory, also one that is a link; None: it does not lie there."""
        tops = (self.path, Path(os.path.realpath(self.path)))
        for each in (os.path.normpath(path), os.path.realpath(path)):
            for top in tops:
                if top in Path(each).parents:
                    return Path(each).relative_to(top).as_posix()
        return None

    def files_at(self, name: str) -> list[str]:
        """The files that a name in the directory stands for: itself, or all below it."""
        path = self.path / name
        if not path.is_dir():
            return [name]
        return [f"{name}/{below}" for each, below in walk_local(path, self.warn) if not each.is_dir()]

    def copy(self, file: str) -> str:
        """Copy a file for a commit that is about to be asked for; returns its URI."""
        uri, path = self._uri(file), self.path / file
        if path.exists() and not path.is_file():  # a FIFO would be read for ever
            raise OSError(f"{path} is neither a file nor a directory, nor a link to one")
        self._copied[file] = 0  # from now on something may be there
        self.storage.make_directories(uris.parent(uri), permission=DATA_DIRECTORY)
        self._copied[file] = self._upload.send(path, uri)
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
                self.storage.remove(self._uri(file))
        files, size = self._upload.run(self.path, self.part, self._is_wanted)
        return files + len(self.committed), size + sum(self.committed.values())

    def _uri(self, file: str) -> str:
        return uris.join(self.part, stored_path(self.part, file))

    def _is_wanted(self, file: str) -> bool:
        return file not in self.committed and file not in self._refused

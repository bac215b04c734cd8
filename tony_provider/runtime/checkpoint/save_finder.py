"""The saves of known formats in a checkpoint directory: verified by reading, and which of them a program can load."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.artifacts.tree import Tree
from tony_provider.runtime.checkpoint import save_formats
from tony_provider.runtime.checkpoint.consistency import Verified
from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.save_view import Read, ReadCache, Save, SaveView, is_temporary
from tony_provider.runtime.jobspec.model import CheckpointFormat

log = logging.getLogger(__name__)


__all__ = ["Read", "Save", "SaveFinder", "Saves"]


# A program that uses one of the first kinds resumes from it, also if it writes files of the later kinds. Files of NumPy
# come last, because programs also keep other things in them.
_KINDS: Mapping[Callable[[SaveView], Iterable[Save]], int] = {
    save_formats.find_manifests: 0,
    save_formats.find_directories: 1,
    save_formats.find_tensorflow: 2,
    save_formats.find_archives: 3,
    save_formats.find_files: 3,
}


@attrs.frozen
class Saves:
    """All saves of known formats in a directory at one moment."""

    saves: Sequence[Save]
    view: SaveView

    def verified(self, *, alone: bool) -> Verified:
        """Return the results of the saves for the directory's files.

        ``alone``: the saves belong to this task alone, so that a missing file is an error. Otherwise, it may be in the
        directory of another task.
        """
        whole: set[str] = set()
        broken: dict[str, str] = {}
        for save in self.saves:
            problem = save.problem or (self._missing(save) if alone else "")
            if problem:
                broken.update(dict.fromkeys(save.files, problem))
            elif save.proven:
                whole.update(save.files)
        declared = {
            save.files[0]: save.files[1:]
            for save in self.saves
            if save.is_manifest and save.proven and not set(save.files) & set(broken)
        }
        listed = {path for save in self.saves if save.is_manifest for path in save.files[1:]}
        outdated = listed - {path for paths in declared.values() for path in paths} - set(broken)
        return Verified(whole - set(broken), broken, declared, outdated)

    def loadable(self, *, alone: bool) -> Optional[Save]:
        """Return the newest complete save that a framework can load, or None if there is none.

        Saves inside a directory that is a save do not count. A save named "best" counts only if there is no other.
        """
        damaged = {path for save in self.saves if save.problem for path in save.files}
        roots = [save.entry for save in self.saves if save.entry in self.view.directories]
        outer = [
            save
            for save in self.saves
            if save.format and save.entry and not any(save.entry.startswith(f"{root}/") for root in roots)
            if not damaged & set(save.files) and not (alone and self._missing(save))
            if save.is_manifest or not any(map(is_temporary, save.entry.split("/")))
        ]
        if not outer:
            return None
        first = min(save.preference for save in outer)
        return max(
            (save for save in outer if save.preference == first),
            key=lambda save: (not save.is_best, self.view.newest_time(save.files), save.entry),
        )

    def _missing(self, save: Save) -> str:
        for path, size in sorted(save.needs.items()):
            version = self.view.files.get(path)
            if version is None:
                return f"{path} is missing"
            if version.size < size:
                return f"{path} has {version.size} bytes instead of {size}"
        return ""


class SaveFinder:
    """Finder that repeatedly lists the saves of one directory, and reads only files that have changed.

    Use it from one thread at a time.
    """

    def __init__(self, directory: Path, *, world_size: int = 1, reading: Read = read_here) -> None:
        """``world_size``: the number of processes with a rank, each of which may write its part of a save."""
        self._directory = directory
        self._world_size = world_size
        self._cache = ReadCache(reading)
        self._faults: set[str] = set()

    def find(self, tree: Tree, foreign: Collection[str] = ()) -> Saves:
        """Return the saves in a scanned tree of the directory. Blocks, and reads the files. Raises OSError.

        ``foreign``: paths that a restore has brought from other tasks.
        """
        found_files = tree.files
        self._cache.keep(found_files)
        view = SaveView(
            self._directory,
            {path: node.version for path, node in found_files.items()},
            frozenset(path for path in tree.nodes if path not in found_files),
            self._world_size,
            self._cache,
            foreign,
        )
        found = [
            attrs.evolve(save, preference=preference if save.format != CheckpointFormat.NUMPY.value else len(_KINDS))
            for find, preference in _KINDS.items()
            for save in self._found(find, view)
        ]
        return Saves(found, view)

    def _found(self, find: Callable[[SaveView], Iterable[Save]], view: SaveView) -> Iterator[Save]:
        try:
            yield from find(view)
        except OSError:
            raise
        except Exception:  # an internal error with one format must not hide the saves of other formats
            name = find.__qualname__
            if name not in self._faults:
                self._faults.add(name)
                log.exception("internal error in %s", name)

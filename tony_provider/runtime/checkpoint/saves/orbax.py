"""Saves of Orbax: a directory for each step, which gets its final name when it is complete.

The arrays are in OCDBT databases, each with a small manifest that has a checksum, or in Zarr directories. The
databases are compressed with Zstandard, so that a file missing inside one cannot be detected here.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Optional

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.save_names import names_a_checkpoint, step_in
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, beside, join
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.ORBAX.value
UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a save, until Orbax has finished it
_STEP_METADATA, _SUCCESS, _VERSION_1 = "_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"
_TREE, _DATABASE = "_METADATA", "manifest.ocdbt"
_PROCESS = "ocdbt.process_"  # of a database that is part of another
_ARRAYS = (".zarray", "zarr.json")


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each step directory."""
    for root in sorted(_roots(view)):
        names = view.below(root)
        try:
            proven = _check(view, root, names)
        except Unreadable as error:
            yield Save(KIND, root, names, problem=str(error))
        except FileNotFoundError:
            continue
        else:
            yield Save(KIND, root, names, step_in(basename(root)), proven=proven)
    for path in view.files:
        if UNFINISHED in path:
            yield Save("", "", (path,), problem="Orbax has not given the directory its final name")


def _roots(view: SaveView) -> set[str]:
    """The directories of steps, none below another."""
    found = set()
    for path in view.files:
        directory, name = dirname(path), basename(path)
        if UNFINISHED in path:
            continue
        if name in (_STEP_METADATA, _VERSION_1):
            found.add(directory)
        elif name in (_TREE, _DATABASE) and _PROCESS not in directory:
            # Written by an older Orbax, or an item of a step: then the step is the directory above.
            above = dirname(directory)
            found.add(above if above and names_a_checkpoint(basename(above)) else directory)
    return {root for root in found if root and not any(root.startswith(f"{other}/") for other in found)}


def _check(view: SaveView, root: str, names: tuple[str, ...]) -> bool:
    """Return whether the step says that it is complete. Raises Unreadable, FileNotFoundError."""
    metadata = join(root, _STEP_METADATA)
    is_marked = join(root, _SUCCESS) in view.files
    if metadata in view.files:
        if not view.read("step", metadata):
            raise Unreadable("it was never committed")
        is_marked = True
    for path in names:
        if basename(path) == _DATABASE:
            view.read("database", path)
            if not any(other.startswith(f"{beside(path, 'd')}/") for other in names):
                raise Unreadable(f"{dirname(path)} has no data")
        elif basename(path) == _TREE:
            _check_tree(view, path)
        elif f"/{_PROCESS}" in path:
            whole = path.partition(f"/{_PROCESS}")[0]
            if join(whole, _DATABASE) not in view.files:
                raise Unreadable(f"{whole} has no {_DATABASE}")
    return is_marked


def _check_tree(view: SaveView, path: str) -> None:
    """Check that the arrays exist which the tree has in directories of their own, each with all its pieces."""
    arrays = view.read("tree", path)
    if arrays is None and beside(path, _DATABASE) not in view.files:
        raise Unreadable(f"{beside(path, _DATABASE)} is missing")
    for array in arrays or ():
        _check_array(view, beside(path, array))


def _check_array(view: SaveView, directory: str) -> None:
    metadata: Optional[str] = next(
        (path for path in (join(directory, kind) for kind in _ARRAYS) if path in view.files), None
    )
    if metadata is None:
        raise Unreadable(f"{directory} is missing")
    wanted, pieces = view.read("array", metadata), len(view.below(directory)) - 1
    if pieces < wanted:
        raise Unreadable(f"{directory} has {pieces} of {wanted} pieces")

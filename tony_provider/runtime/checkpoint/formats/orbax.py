"""Orbax's checkpoints: a directory for each step, renamed from a temporary name once it is whole.

Its arrays are in OCDBT databases (each with a small manifest that has a checksum) or in Zarr directories. A file that
is missing from the inside of a database cannot be found out here, as the databases are compressed with Zstandard.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.checkpoint.formats.step_names import names_a_checkpoint
from tony_provider.runtime.checkpoint.formats.torch_directory import is_below, join
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.ORBAX
_TEMPORARY = ".orbax-checkpoint-tmp"
_STEP_METADATA, _SUCCESS, _VERSION_1 = "_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"
_TREE, _DATABASE = "_METADATA", "manifest.ocdbt"
_PROCESS = "ocdbt.process_"  # of a database that is part of another
_ARRAYS = (".zarray", "zarr.json")


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are Orbax's directories."""
    temporary = [name for name in view.files if _TEMPORARY in name]
    yield Pending(tuple(temporary))
    view = view.without(temporary)
    for root in sorted(_roots(view)):
        names = view.below(root)
        try:
            yield _step(view, root, names)
        except Unreadable as error:
            yield view.not_complete(names, f"{root or '.'}: {error}")
        except FileNotFoundError:
            yield Pending(tuple(names))


def _roots(view: View) -> set[str]:
    """The directories of steps, none below another."""
    found = {dirname(name) for name in view.files if basename(name) in (_STEP_METADATA, _VERSION_1)}
    for name in view.files:
        directory = dirname(name)
        if basename(name) in (_TREE, _DATABASE) and _PROCESS not in directory:
            # A checkpoint of old, or one of its items: then the step is the directory above.
            above = dirname(directory)
            found.add(above if above and names_a_checkpoint(basename(above)) else directory)
    return {root for root in found if root and not any(is_below(root, other) for other in found)}


def _step(view: View, root: str, names: list[str]) -> Finding:
    if view.is_shrinking(root, names):
        return Pending(tuple(names))
    is_marked = _check_step(view, root)
    for name in names:
        if basename(name) == _DATABASE:
            view.read_part("database", name)
            if not any(is_below(other, join(dirname(name), "d")) for other in names):
                raise Unreadable(f"{dirname(name)} has no data")
        elif basename(name) == _TREE:
            _check_tree(view, name)
        elif f"/{_PROCESS}" in name and join(name.partition(f"/{_PROCESS}")[0], _DATABASE) not in view.files:
            raise Unreadable(f"{name.partition(f'/{_PROCESS}')[0]} has lost its {_DATABASE}")
    if not is_marked and not view.is_quiet(names):
        return Pending(tuple(names))
    view.is_whole(root, names)
    return view.complete(view.step(root), KIND.value, root or ".", names)


def _check_step(view: View, root: str) -> bool:
    """Whether something says that the step was written to its end."""
    metadata = join(root, _STEP_METADATA)
    if metadata not in view.files:
        return join(root, _SUCCESS) in view.files
    if not view.read_part("step", metadata):
        raise Unreadable("it was never committed")
    return True


def _check_tree(view: View, name: str) -> None:
    """What the tree says is in arrays of their own must be there, each with all its pieces."""
    arrays = view.read_part("tree", name)
    if arrays is None:
        if join(dirname(name), _DATABASE) not in view.files:
            raise Unreadable(f"{join(dirname(name), _DATABASE)} is missing")
        return
    for array in arrays:
        _check_array(view, join(dirname(name), array))


def _check_array(view: View, directory: str) -> None:
    metadata = next((name for name in (join(directory, kind) for kind in _ARRAYS) if name in view.files), None)
    if metadata is None:
        raise Unreadable(f"{directory} is missing")
    wanted = view.read_part("array", metadata)
    pieces = len(view.below(directory)) - 1
    if pieces < wanted:
        raise Unreadable(f"{directory} has {pieces} of {wanted} pieces")

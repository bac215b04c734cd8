"""Orbax's checkpoints: a directory for each step, renamed from a temporary name once it is whole.

Its arrays are in OCDBT databases (each with a small manifest that has a checksum) or in Zarr directories. A file that
is missing from the inside of a database cannot be found out here, as the databases are compressed with Zstandard.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Any

from tony_provider.runtime.checkpoint.formats.crc32c import crc32c
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, Unreadable, View
from tony_provider.runtime.checkpoint.formats.step_names import names_a_checkpoint
from tony_provider.runtime.checkpoint.formats.torch_directory import is_below, join
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.ORBAX
_TEMPORARY = ".orbax-checkpoint-tmp"
_STEP_METADATA, _SUCCESS, _VERSION_1 = "_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"
_TREE, _DATABASE = "_METADATA", "manifest.ocdbt"
_PROCESS = "ocdbt.process_"  # of a database that is part of another
_DATABASE_MAGIC = bytes.fromhex("0cdb3a2a")
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
            view.remember("ocdbt", (name,), lambda name=name: _check_database(view, name))  # type: ignore[misc]
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
    plain = view.remember("orbax", (metadata,), lambda: _json(view, metadata))
    if plain.get("commit_timestamp_nsecs", 0) is None:
        raise Unreadable("it was never committed")
    return True


def _check_database(view: View, name: str) -> None:
    data = view.path(name).read_bytes()
    if data[:4] != _DATABASE_MAGIC or int.from_bytes(data[4:12], "little") != len(data):
        raise Unreadable(f"{name} is not a whole manifest of a database")
    if crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Unreadable(f"{name} is damaged: its checksum is wrong")


def _check_tree(view: View, name: str) -> None:
    """What the tree says is in arrays of their own must be there, each with all its pieces."""
    tree = view.remember("orbax", (name,), lambda: _json(view, name))
    if tree.get("use_ocdbt", True):
        if join(dirname(name), _DATABASE) not in view.files:
            raise Unreadable(f"{join(dirname(name), _DATABASE)} is missing")
        return
    for entry in _values(tree.get("tree_metadata")):
        value = entry.get("value_metadata")
        if isinstance(value, dict) and value.get("value_type") in ("jax.Array", "np.ndarray"):
            keys = [str(key.get("key")) for key in entry.get("key_metadata", ()) if isinstance(key, dict)]
            _check_array(view, join(dirname(name), ".".join(keys)))


def _check_array(view: View, directory: str) -> None:
    metadata = next((name for name in (join(directory, kind) for kind in _ARRAYS) if name in view.files), None)
    if metadata is None:
        raise Unreadable(f"{directory} is missing")
    array = view.remember("zarr", (metadata,), lambda: _json(view, metadata))
    pieces = len(view.below(directory)) - 1
    chunks, shape = array.get("chunks"), array.get("shape")
    if isinstance(chunks, list) and isinstance(shape, list):
        wanted = math.prod(-(-whole // piece) for whole, piece in zip(shape, chunks) if piece)
        if pieces < wanted:
            raise Unreadable(f"{directory} has {pieces} of {wanted} pieces")


def _values(plain: Any) -> list[dict[str, Any]]:
    return [value for value in plain.values() if isinstance(value, dict)] if isinstance(plain, dict) else []


def _json(view: View, name: str) -> dict[str, Any]:
    try:
        plain = json.loads(view.path(name).read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name} cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise Unreadable(f"{name} is no JSON object")
    return plain

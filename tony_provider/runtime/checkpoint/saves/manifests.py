"""Saves of any format with a manifest that the program writes last; see ``tony_sdk.commit_checkpoint``.

``<name>.tony.json`` holds ``{"step": 20, "entry": "model-20", "files": [{"path": "model-20/a", "size": 12}]}``. Paths
are relative to the manifest's directory. A file may have a ``checksum`` such as ``crc32:0a1b2c3d``. A manifest does
not apply to files that were changed after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname

from tony_provider.runtime.artifacts import checksum
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.save_names import MANIFEST_SUFFIX
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, join
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.MANIFEST.value


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each manifest; its first file is the manifest."""
    for path in sorted(view.files):
        if path.endswith(MANIFEST_SUFFIX):
            try:
                yield _save(view, path)
            except Unreadable as error:
                yield Save(KIND, "", (path,), problem=str(error), is_manifest=True)
            except FileNotFoundError:
                continue


def _save(view: SaveView, manifest: str) -> Save:
    step, entry, listed = view.read("manifest", manifest)
    place = dirname(manifest)
    paths = [join(place, path) for path, _, _ in listed]
    problem = ""
    for path, (_, size, wanted) in zip(paths, listed):
        version = view.files.get(path)
        if version is None:
            problem = f"{path} is missing"
        elif version.size != size:
            problem = f"{path} has {version.size} bytes instead of {size}"
        elif wanted is not None and _checksum(view, path, wanted) != wanted:
            problem = f"{path} does not have the checksum {wanted}"
    files = (manifest, *(path for path in paths if path in view.files))
    if view.newest_time(paths) > view.files[manifest].mtime_ns:  # the next save has begun, or has a manifest of its own
        return Save("", "", files, is_manifest=True)
    return Save(KIND, join(place, entry), files, step, problem, proven=True, is_manifest=True, content_step=step)


def _checksum(view: SaveView, path: str, wanted: str) -> str:
    try:
        algorithm = checksum.algorithm_of(wanted)
    except checksum.UnknownChecksum as error:
        raise Unreadable(f"it is not a manifest of a checkpoint ({error})") from error
    return str(view.read(f"checksum {algorithm}", path))

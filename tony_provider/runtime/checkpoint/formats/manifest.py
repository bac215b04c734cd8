"""Checkpoints of any format with a manifest that the program writes last; see ``tony_sdk.commit_checkpoint``.

``<name>.tony.json`` holds ``{"step": 20, "entry": "model-20", "files": [{"path": "model-20/a", "size": 12}]}``. Paths
are relative to the directory that it lies in; a file may have a ``checksum`` such as ``crc32:0a1b2c3d``.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname

from tony_provider.runtime.artifacts import checksum
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, View
from tony_provider.runtime.spec.model import CheckpointFormat

SUFFIX = ".tony.json"


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that have a manifest."""
    for name in sorted(view.files):
        if name.endswith(SUFFIX):
            try:
                yield _check(view, name)
            except Unreadable as error:
                yield view.not_complete((name,), f"{name}: {error}")
            except FileNotFoundError:
                continue


def _check(view: View, name: str) -> Finding:
    directory = dirname(name)
    step, entry, listed = view.read("manifest", name)
    files = [(f"{directory}/{path}" if directory else path, size, sum_) for path, size, sum_ in listed]
    names = [path for path, _, _ in files]
    there = [name, *(path for path in names if path in view.files)]
    for path, size, sum_ in files:
        stamp = view.files.get(path)
        if stamp is None:
            return view.not_complete(there, f"{name}: {path} is missing")
        if stamp.size != size:
            return view.not_complete(there, f"{name}: {path} has {stamp.size} bytes instead of {size}")
        if sum_ is not None and sum_ != _sum(view, path, sum_):
            return view.not_complete(there, f"{name}: {path} is not what its checksum says")
    entry = f"{directory}/{entry}" if directory else entry
    return view.complete(step, CheckpointFormat.MANIFEST.value, entry, [name, *names])


def _sum(view: View, path: str, like: str) -> str:
    try:
        algorithm = checksum.algorithm_of(like)
    except checksum.UnknownChecksum as error:
        raise Unreadable(f"it is no manifest of a checkpoint ({error})") from error
    return view.remember(algorithm, (path,), lambda: checksum.file_checksum(view.path(path), algorithm))

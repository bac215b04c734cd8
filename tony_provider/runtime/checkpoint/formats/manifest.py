"""Checkpoints of any format with a manifest that the program writes last; see ``tony_sdk.commit_checkpoint``.

``<name>.tony.json`` holds ``{"step": 20, "entry": "model-20", "files": [{"path": "model-20/a", "size": 12}]}``. Paths
are relative to the directory that it lies in; a file may have a ``checksum`` such as ``crc32:0a1b2c3d``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from posixpath import dirname
from typing import Any, Optional

import attrs

from tony_provider.runtime.checkpoint import checkpoint_model, checksum
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Unreadable, View
from tony_provider.runtime.spec.model import CheckpointFormat

SUFFIX = ".tony.json"
_LONGEST = 64 << 20  # bytes


@attrs.frozen
class _File:
    path: str
    size: int
    checksum: Optional[str]


@attrs.frozen
class _Manifest:
    step: int
    entry: str
    files: tuple[_File, ...]


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
    manifest = view.remember("manifest", (name,), lambda: _read(view, name))
    names = [file.path for file in manifest.files]
    there = [name, *(path for path in names if path in view.files)]
    for file in manifest.files:
        stamp = view.files.get(file.path)
        if stamp is None:
            return view.not_complete(there, f"{name}: {file.path} is missing")
        if stamp.size != file.size:
            return view.not_complete(there, f"{name}: {file.path} has {stamp.size} bytes instead of {file.size}")
        if file.checksum is not None and file.checksum != _sum(view, file.path, file.checksum):
            return view.not_complete(there, f"{name}: {file.path} is not what its checksum says")
    return view.complete(manifest.step, CheckpointFormat.MANIFEST.value, manifest.entry, [name, *names])


def _sum(view: View, path: str, like: str) -> str:
    algorithm = checksum.algorithm_of(like)
    return view.remember(algorithm, (path,), lambda: checksum.file_checksum(view.path(path), algorithm))


def _read(view: View, name: str) -> _Manifest:
    directory = dirname(name)
    try:
        with view.path(name).open("rb") as file:
            plain = json.loads(file.read(_LONGEST))
        files = tuple(_file(directory, one) for one in plain["files"])
        step = plain["step"]
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise Unreadable(f"step {step!r} is no number from 0 on")
        if not files:
            raise Unreadable("it names no files")
        return _Manifest(step, _inside(directory, plain["entry"]), files)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unreadable(f"it is no manifest of a checkpoint ({error!r})") from error


def _file(directory: str, plain: Any) -> _File:
    size, sum_ = plain["size"], plain.get("checksum")
    if isinstance(size, bool) or not isinstance(size, int):
        raise Unreadable(f"size {size!r} is no number")
    if sum_ is not None:
        checksum.algorithm_of(str(sum_))
    return _File(_inside(directory, plain["path"]), size, sum_)


def _inside(directory: str, path: Any) -> str:
    if not isinstance(path, str) or not checkpoint_model.is_inside(path):
        raise Unreadable(f"{path!r} is no path below the directory")
    return f"{directory}/{path}" if directory else path

"""Whether an output may be written at its path: what is there already is kept, unless it is the training's own."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.outputs.output_mark import read_mark
from tony_provider.runtime.spec.model import OutputSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import Storage, StorageNotFound, uris

_REMEDY = "name another path, remove it, or write `replace: true`"


def target_problem(storage: Storage, name: str, spec: OutputSpec, training: str) -> str:
    """Why the output may not be written, with the path of the key and what to do; empty: it may. Blocks.

    ``training`` is the name of its identity. Raises StorageError.
    """
    where = f"{child(child('outputs', name), 'path')}: {spec.path}"
    if uris.scheme(spec.path) == "file" and (why := _fixed(Path(uris.parse(spec.path).path))):
        return f"{where}: {why}"
    why = "" if spec.replace else _not_ours(storage, spec.path, training)
    return f"{where}: {why}; {_REMEDY}" if why else ""


def _fixed(path: Path) -> str:
    """Why another directory of this machine cannot take the place of what is there."""
    try:
        if path.is_symlink():
            return "it is a symbolic link, in whose place the output would be; name the directory that it leads to"
        if path.is_mount():
            return "a file system is mounted there, in whose place no output can be; name a directory in it"
    except OSError:  # below something that cannot be entered, which whoever makes directories there tells better
        return ""
    return ""


def _not_ours(storage: Storage, target: str, training: str) -> str:
    try:
        if not storage.status(target).is_directory:
            return "a file is there"
        for name in (contract.OUTPUT_MARK_FILE, contract.SUCCESS_FILE):
            mark = read_mark(storage, target, name)
            if mark is not None:
                return (
                    "" if mark.training == training else f"{mark.application_id}, of another training, has written it"
                )
        return "it is not empty, and this training did not write it" if storage.list(target) else ""
    except StorageNotFound:
        return ""

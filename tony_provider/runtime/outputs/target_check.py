"""Whether an output may be written at its path: what is there already is kept, unless it is the training's own."""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.outputs.output_mark import read_mark
from tony_provider.runtime.spec.model import OutputSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import Storage, StorageNotFound

_REMEDY = "name another path, remove it, or write `replace: true`"


def target_problem(storage: Storage, name: str, spec: OutputSpec, training: str) -> str:
    """Why the output may not be written, with the path of the key and what to do; empty: it may. Blocks.

    ``training`` is the name of its identity. Raises StorageError.
    """
    why = "" if spec.replace else _not_ours(storage, spec.path, training)
    return f"{child(child('outputs', name), 'path')}: {spec.path}: {why}; {_REMEDY}" if why else ""


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

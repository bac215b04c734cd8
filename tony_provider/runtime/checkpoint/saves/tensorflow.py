"""TensorFlow's saves (``tf.train.Checkpoint``, CheckpointManager, Saver): an index and the data files that it lists.

The bytes of tensors are not verified here: TensorFlow verifies their checksums when it loads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname

from tony_provider.runtime.checkpoint.content import bundle
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.save_names import step_in
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, step_of
from tony_provider.runtime.spec.model import CheckpointFormat

_INDEX = ".index"
_VARIABLES = "variables/variables"  # of a saved model
_CHIEF = "chief"  # the directory of BackupAndRestore of tf_keras


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each index."""
    for path in sorted(view.files):
        if path.endswith(_INDEX) and not basename(path).startswith("."):
            try:
                yield _save(view, path)
            except FileNotFoundError:
                continue


def _save(view: SaveView, index: str) -> Save:
    prefix = index[: -len(_INDEX)]
    kind, entry = CheckpointFormat.TENSORFLOW, prefix
    if f"/{prefix}".endswith(f"/{_VARIABLES}"):
        entry = prefix[: -len(_VARIABLES)].rstrip("/") or "."
    if basename(dirname(index)) == _CHIEF:
        kind = CheckpointFormat.KERAS
    there = tuple(path for path in view.below(dirname(index)) if path.startswith(f"{prefix}.data-"))
    try:
        sizes = view.read("bundle", index)
    except Unreadable as error:
        return Save(kind.value, entry, (index, *there), problem=str(error))
    shards = [bundle.shard_name(prefix, number, len(sizes)) for number in range(min(len(sizes), len(view.files) + 1))]
    needs = dict(zip(shards, sizes))
    files = (index, *(path for path in shards if path in view.files))
    if entry == prefix:
        return Save(kind.value, entry, files, step_in(basename(prefix)), proven=True, needs=needs)
    definition = "saved_model.pb" if entry == "." else f"{entry}/saved_model.pb"
    return Save(kind.value, entry, files, step_of(entry), needs={**needs, definition: 1})

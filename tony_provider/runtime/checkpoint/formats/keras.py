"""Keras's checkpoints: ``.keras`` archives, HDF5 weights, and the directories of BackupAndRestore.

BackupAndRestore of Keras 3 writes ``latest.weights.h5`` and then ``training_metadata.json`` anew in place each time;
that of tf_keras writes a TensorFlow checkpoint into ``chief``, which all workers read.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname, splitext

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats import tensorflow
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.KERAS
_WEIGHTS, _METADATA = "latest.weights.h5", "training_metadata.json"
_CHIEF = "chief"
_INDEX = ".index"
_HDF5 = (".h5", ".hdf5")


def find_backups(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints of BackupAndRestore."""
    for name in sorted(view.files):
        directory = dirname(name)
        if basename(name) == _METADATA:
            weights = f"{directory}/{_WEIGHTS}" if directory else _WEIGHTS
            yield _backup(view, weights, name)
        elif basename(directory) == _CHIEF and name.endswith(_INDEX):
            yield from tensorflow.find_one(view, name[: -len(_INDEX)], KIND)
            yield Pending(tuple(state for state in (f"{directory}/{tensorflow.STATE_FILE}",) if state in view.files))


def find_files(view: View) -> Iterator[Finding]:
    """Findings: the ``.keras`` archives and HDF5 weights."""
    for name in sorted(view.files):
        stem, suffix = splitext(name)
        if suffix == ".keras":
            yield from _file(view, name, stem, "keras")
        elif suffix in _HDF5:
            # Nothing but time tells that one that is written in place is whole and new in all its parts.
            if view.is_quiet([name]):
                yield from _file(view, name, stem, "hdf5")
            else:
                yield Pending((name,))


def _backup(view: View, weights: str, metadata: str) -> Finding:
    names = [name for name in (weights, metadata) if name in view.files]
    # What was there before, with double_checkpoint: Keras takes it by itself.
    spare = [f"{name}.bkp" for name in (weights, metadata) if f"{name}.bkp" in view.files]
    if weights not in view.files:
        return Pending((metadata, *spare))
    try:
        epoch = view.read("epoch", metadata)
        view.read("hdf5", weights)
    except Unreadable as error:
        return view.not_complete(names, f"{dirname(metadata) or '.'}: {error}")
    except FileNotFoundError:
        return Pending((*names, *spare))
    if view.files[weights].mtime_ns > view.files[metadata].mtime_ns:
        return view.not_complete(names, f"{weights} is newer than {_METADATA}, which says of which epoch it is")
    return view.complete(epoch, KIND.value, dirname(metadata) or ".", names)


def _file(view: View, name: str, stem: str, reader: str) -> Iterator[Finding]:
    try:
        view.read(reader, name)
    except Unreadable as error:
        yield view.not_complete((name,), f"{name}: {error}")
    except FileNotFoundError:
        return
    else:
        yield view.complete(view.step(stem.removesuffix(".weights")), KIND.value, name, [name])

"""Saves of one file: PyTorch, Keras, HDF5, NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, splitext
from typing import Optional

from tony_provider.runtime.checkpoint.content import torch_file, zips
from tony_provider.runtime.checkpoint.content.torch_file import TorchFile
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, step_of
from tony_provider.runtime.spec.model import CheckpointFormat

_HDF5 = (".h5", ".hdf5")
_TRAINER_FILES = ("training_args.bin",)  # of transformers; loads with torch.load, but is not a model


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each file of a known format."""
    for path in sorted(view.files):
        try:
            save = _save(view, path)
        except FileNotFoundError:
            continue
        if save is not None:
            yield save


def _save(view: SaveView, path: str) -> Optional[Save]:
    suffix = splitext(path)[1]
    if suffix in _HDF5:
        # The content does not show whether a file that was written in place is new in all its parts.
        return _by_reader(view, path, "hdf5", CheckpointFormat.KERAS, proven=False)
    if suffix == ".npy":
        return _numpy_array(view, path)
    if suffix in (".keras", ".npz", ".zip"):
        return None  # archives.py
    return _torch(view, path)


def _by_reader(view: SaveView, path: str, reader: str, kind: CheckpointFormat, *, proven: bool) -> Save:
    try:
        view.read(reader, path)
    except Unreadable as error:
        return Save(kind.value, path, (path,), problem=str(error))
    return Save(kind.value, path, (path,), step_of(path), proven=proven)


def _numpy_array(view: SaveView, path: str) -> Save:
    kind = CheckpointFormat.NUMPY.value
    try:
        is_sure = bool(view.read("npy", path))
    except Unreadable as error:
        return Save(kind, path, (path,), problem=str(error))
    return Save(kind, path, (path,), step_of(path), proven=is_sure)


def _torch(view: SaveView, path: str) -> Optional[Save]:
    """Return the save if the file is one of ``torch.save`` or safetensors, complete or not.

    A pickle may also come from another library, which writes more behind it. So a pickle that cannot be read to its
    end is of an unknown format, except for one with PyTorch's magic number.
    """
    has_suffix = path.endswith((*torch_file.SUFFIXES, ".bin"))
    beginning = view.begins(path, len(torch_file.OLD_MAGIC))
    is_zip, is_old = beginning.startswith(zips.MAGIC), beginning == torch_file.OLD_MAGIC
    is_cut = has_suffix and any(magic.startswith(beginning) for magic in (zips.MAGIC, torch_file.OLD_MAGIC))  # or empty
    is_known = is_zip or is_old or is_cut or path.endswith(".safetensors")
    if not is_known and not beginning.startswith(torch_file.PICKLE):
        return None
    kind = CheckpointFormat.PYTORCH.value if basename(path) not in _TRAINER_FILES else ""
    try:
        read = TorchFile(*view.read("torch", path))
    except Unreadable as error:
        if is_zip and _is_complete_zip(view, path):
            return Save("", path, (path,), proven=True)
        return Save(kind, path, (path,), problem=str(error)) if is_known and has_suffix else None
    inside = read.epoch if read.step is None else read.step
    labelled = step_of(path)
    return Save(kind, path, (path,), inside if labelled is None else labelled, proven=read.is_sure, content_step=inside)


def _is_complete_zip(view: SaveView, path: str) -> bool:
    try:
        view.read("zip", path)
    except Unreadable:
        return False
    return True

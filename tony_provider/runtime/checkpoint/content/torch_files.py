"""Files of PyTorch: ``.safetensors``, ``torch.save``, distributed checkpoints, shard indexes, trainer state.

A ``.safetensors`` file is complete if it has the size in its header.
"""

from __future__ import annotations

import os
from pathlib import Path
from posixpath import basename
from typing import Any, BinaryIO, Optional

import attrs

from tony_provider.runtime.checkpoint.content import pickles, zips
from tony_provider.runtime.checkpoint.content.zips import Unreadable, is_count, json_object
from tony_provider.runtime.common.bounds import BoundedJsonError, read_json

_LONGEST_HEADER = 100 << 20  # bytes, the format's own limit


def check_safetensors(path: Path) -> None:
    """Check that a ``.safetensors`` file is complete. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if length > min(_LONGEST_HEADER, size - 8):
            raise Unreadable(f"its header cannot be read: it would have {length} bytes")
        header = file.read(length)
    try:
        tensors = [entry for name, entry in read_json(header).items() if name != "__metadata__"]
        ends = [entry["data_offsets"][1] for entry in tensors]
    except (BoundedJsonError, TypeError, LookupError, AttributeError) as error:
        raise Unreadable(f"its header cannot be read: {error}") from error
    if not all(map(is_count, ends)):
        raise Unreadable("its header cannot be read: an offset in it is not a number of bytes")
    end = 8 + length + max(ends, default=0)
    if size != end:
        raise Unreadable(f"it has {size} bytes instead of {end}")


SUFFIXES = (".pth.tar", ".pt", ".pth", ".ckpt", ".safetensors")
OLD_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
PICKLE = b"\x80"
_LONGEST_PICKLE = 64 << 20  # bytes; read for the step only
_STEPS = ("global_step", "step", "iteration", "iter", "iter_num", "step_num")
_EPOCHS = ("epoch", "epochs_run")  # not "epochs" or "steps", which are totals
_BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4, "QInt32": 4}
_BYTES |= {"Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1, "QInt8": 1, "QUInt8": 1}


@attrs.frozen
class TorchFile:
    """Content of a complete file of ``torch.save``."""

    step: Optional[int]  # from its content
    epoch: Optional[int]
    is_sure: bool  # its end was read; otherwise the file may be truncated


def looks_like_one(path: Path) -> bool:
    """Return whether a file begins like a file of ``torch.save``. Raises OSError."""
    with path.open("rb") as file:
        beginning = file.read(len(zips.ZIP_MAGIC))
    cut_short = zips.ZIP_MAGIC.startswith(beginning)  # or empty
    return path.name.endswith(".safetensors") or beginning.startswith((zips.ZIP_MAGIC, PICKLE)) or cut_short


def read_torch_file(path: Path) -> TorchFile:
    """Read and check all of a file. Raises Unreadable, OSError."""
    if path.name.endswith(".safetensors"):
        check_safetensors(path)
        return TorchFile(None, None, True)
    with path.open("rb") as file:
        beginning = file.read(len(OLD_MAGIC))
        if beginning.startswith(zips.ZIP_MAGIC):
            return _archive(path)
        if not beginning.startswith(PICKLE):
            raise Unreadable("it is empty" if not beginning else "it is neither a zip archive nor a pickle")
        file.seek(0)
        return _old(file) if beginning == OLD_MAGIC else _plain_pickle(file)


def _archive(path: Path) -> TorchFile:
    with zips.open_zip(path) as archive:
        top = next((name for name in archive.namelist() if basename(name) == "data.pkl"), None)
        if top is None:
            raise Unreadable("it contains no data.pkl")
        if not zips.check_zip(archive) or archive.getinfo(top).file_size > _LONGEST_PICKLE:
            return TorchFile(None, None, True)
        with archive.open(top) as data:
            return _described_by(pickles.read(data), True)  # type: ignore[arg-type]


def _described_by(pickle: pickles.PickleContent, is_sure: bool) -> TorchFile:
    value = pickle.value
    return TorchFile(pickles.number_at(value, *_STEPS), pickles.number_at(value, *_EPOCHS), is_sure)


def _plain_pickle(file: BinaryIO) -> TorchFile:
    pickle = pickles.read(file)
    if file.read(1):
        raise Unreadable("data follows its pickle")
    return _described_by(pickle, True)


def _old(file: BinaryIO) -> TorchFile:
    """Read pickles of a magic number, a version, the system, the object and the keys of its storages, then these."""
    for _ in range(3):
        pickles.read(file)
    what = pickles.read(file)
    keys = pickles.read(file).value
    # Accept only text, because hashing or comparing a nested tuple may never end.
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Unreadable("it names no storages")
    sizes = {entry[2]: _element_size(entry[1]) for entry in what.persistent if _is_storage(entry)}
    for key in keys:
        size = sizes.get(key)
        count = int.from_bytes(_exactly(file, 8), "little")
        if size is None:
            return _described_by(what, False)  # of an unknown type, so the following storages cannot be found
        _skip(file, count * size)
    return _described_by(what, True)


def _is_storage(entry: object) -> bool:
    return isinstance(entry, tuple) and len(entry) >= 3 and entry[0] == "storage" and isinstance(entry[2], str)


def _element_size(storage: object) -> Optional[int]:
    name = storage.name if isinstance(storage, pickles.OpaqueObject) else ""
    return _BYTES.get(name.rpartition(" ")[2].replace("Storage", ""))


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise Unreadable("it is cut short")
    return data


def _skip(file: BinaryIO, count: int) -> None:
    if count > os.fstat(file.fileno()).st_size - file.tell():
        raise Unreadable("it is cut short")
    file.seek(count, 1)


_MOST_BYTES = 32 << 20  # of an index


def shard_ends(path: Path) -> dict[str, int]:
    """Return the minimum size of each file. A ``_StorageInfo`` has each tensor's place: file, offset, length.

    Raises Unreadable, OSError.
    """
    with path.open("rb") as file:
        plain = pickles.read(file)
    found: dict[str, int] = {}
    for state in plain.states:
        name = state.get("relative_path") if isinstance(state, dict) else None
        offset, length = pickles.number_at(state, "offset"), pickles.number_at(state, "length")
        if isinstance(name, str) and offset is not None and length is not None:
            found[name] = max(found.get(name, 0), offset + length)
    return found


def index_shards(path: Path) -> list[str]:
    """Return the files that an index lists. Raises Unreadable, OSError."""
    listed = json_object(path, _MOST_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise Unreadable("it names no files")
    return sorted(set(listed.values()))


_MOST_TRAINER_STATE_BYTES = 64 << 20  # the log history grows with the training


def global_step(path: Path) -> int:
    """Return the step of the save. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_TRAINER_STATE_BYTES).get("global_step")
    if not is_count(found):
        raise Unreadable("it has no global_step")
    return int(found)

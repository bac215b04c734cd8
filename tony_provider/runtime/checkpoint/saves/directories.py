"""Saves that are a directory of PyTorch or Keras.

PyTorch: distributed checkpoints (DCP), and the directories of transformers, accelerate, DeepSpeed and Lightning. Their
names and contents show which files belong to a save, also files that other ranks write. Keras 3: BackupAndRestore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import basename, dirname
from typing import Optional

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.saves import orbax
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, beside, join, step_of
from tony_provider.runtime.spec.model import CheckpointFormat

_METADATA = re.compile(r"(?:__[0-9]+)?\.metadata")  # of DCP, written last
_SHARD = ".distcp"
_INDEX = ".index.json"
_PIECE = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.safetensors|\.bin)")
# Each process with a rank writes one of these files: transformers, accelerate, DeepSpeed.
_PER_RANK = re.compile(
    r"(?P<before>rng_state_|random_states_|(?:bf16_)?zero_pp_rank_)(?P<rank>[0-9]+)"
    r"(?P<after>\.pth|\.pkl|_mp_rank_00_(?:optim|model)_states\.pt)"
)
_TRAINER_STATE = "trainer_state.json"  # of transformers, written last
_TRAINER_DIRECTORY = re.compile(r"checkpoint-[0-9]+")
_TRAINER_FILE = re.compile(r"rng_state.*\.pth|training_args\.bin|scheduler\.pt")
_DEEPSPEED_MODEL = re.compile(r"mp_rank_[0-9]{2}_model_states\.pt")
_WEIGHTS, _EPOCH = "latest.weights.h5", "training_metadata.json"  # of BackupAndRestore, in the order of writing
_MOST_PIECES = 10_000


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each directory that is one."""
    yield from orbax.find(view)
    for directory, names in _by_directory(view).items():
        try:
            save = _keras(view, directory, names) or _torch(view, directory, names)
        except Unreadable as error:
            save = Save(CheckpointFormat.PYTORCH.value, directory or ".", view.below(directory), problem=str(error))
        except FileNotFoundError:
            continue
        if save is not None:
            yield save


def _by_directory(view: SaveView) -> Mapping[str, list[str]]:
    """The names of the files directly in each directory."""
    found: dict[str, list[str]] = {}
    for path in sorted(view.files):
        found.setdefault(dirname(path), []).append(basename(path))
    return found


def _torch(view: SaveView, directory: str, names: list[str]) -> Optional[Save]:
    """Return the save that a directory is, or None. Raises Unreadable, FileNotFoundError."""
    is_distributed = any(name.endswith(_SHARD) or _METADATA.fullmatch(name) for name in names)
    is_trainer = _TRAINER_STATE in names or bool(
        _TRAINER_DIRECTORY.fullmatch(basename(directory)) and any(map(_TRAINER_FILE.fullmatch, names))
    )
    needs: dict[str, int] = {}
    for name in names:
        needs.update(_needs(view, directory, name))
    if not (is_distributed or is_trainer or needs or any(map(_DEEPSPEED_MODEL.fullmatch, names))):
        return None
    content_step: Optional[int] = None
    problem = ""
    if is_trainer:
        needs[join(directory, _TRAINER_STATE)] = 1
        if _TRAINER_STATE in names:
            content_step = view.read("trainer", join(directory, _TRAINER_STATE))
    if is_distributed:
        problem = _distributed(view, directory, names, needs)
    is_proven = is_distributed and not is_trainer and not problem
    files = view.below(directory) if directory else tuple(names)
    step = step_of(directory) if content_step is None else content_step
    kind = CheckpointFormat.PYTORCH.value
    return Save(kind, directory or ".", files, step, problem, is_proven, needs, content_step=content_step)


def _needs(view: SaveView, directory: str, name: str) -> Iterator[tuple[str, int]]:
    """Yield the files without which this one is not complete, and their least sizes."""
    path = join(directory, name)
    if name.endswith(_INDEX):
        yield from ((beside(path, shard), 1) for shard in view.read("shards", path))
    piece = _PIECE.fullmatch(name)
    if piece is not None and int(piece["count"]) <= _MOST_PIECES:
        stem, suffix = piece["name"], piece["suffix"]
        yield beside(path, f"{stem}{suffix}{_INDEX}"), 1
        for number in range(1, int(piece["count"]) + 1):
            yield beside(path, f"{stem}-{number:05d}-of-{piece['count']}{suffix}"), 1
    part = _PER_RANK.fullmatch(name)
    if part is not None and int(part["rank"]) < view.world_size:
        for rank in range(view.world_size):
            yield beside(path, f"{part['before']}{rank}{part['after']}"), 1


def _distributed(view: SaveView, directory: str, names: list[str], needs: dict[str, int]) -> str:
    """Add the files of a distributed checkpoint to ``needs``. Return the reason why it is not complete."""
    metadata = [join(directory, name) for name in names if _METADATA.fullmatch(name)]
    written = min((view.files[path].mtime_ns for path in metadata), default=0)
    shards = [join(directory, name) for name in names if name.endswith(_SHARD)]
    newer = [path for path in shards if path not in view.foreign and view.files[path].mtime_ns > written]
    if not metadata or (newer and set(metadata) <= set(view.foreign)):  # that of another task is of the save before
        needs[join(directory, ".metadata")] = 1
        return ""
    for path in metadata:
        needs.update({beside(path, name): end for name, end in view.read("ends", path).items()})
    return f"{newer[0]} is newer than {metadata[0]}, which is written last" if newer else ""


def _keras(view: SaveView, directory: str, names: list[str]) -> Optional[Save]:
    """Return the save of Keras 3's BackupAndRestore, or None. Raises Unreadable, FileNotFoundError."""
    if _EPOCH not in names:
        return None
    weights, epoch = join(directory, _WEIGHTS), join(directory, _EPOCH)
    kind, problem = CheckpointFormat.KERAS.value, ""
    step: Optional[int] = None
    try:
        step = view.read("epoch", epoch)
        if _WEIGHTS in names:
            view.read("hdf5", weights)
            if view.files[weights].mtime_ns > view.files[epoch].mtime_ns:
                problem = f"{weights} is newer than {epoch}, which is written last"
    except Unreadable as error:
        problem = str(error)
    files = tuple(join(directory, name) for name in names if name in (_WEIGHTS, _EPOCH))
    return Save(kind, directory or ".", files, step, problem, proven=True, needs={weights: 1}, content_step=step)

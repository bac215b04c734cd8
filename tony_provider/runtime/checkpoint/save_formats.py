"""Find the saves in a checkpoint directory, with a function for each kind of save."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import basename, dirname, splitext
from typing import Optional

from tony_provider.runtime.artifacts.manifest import UnknownChecksum, algorithm_of
from tony_provider.runtime.checkpoint.content import tensorflow_files, torch_files, zips
from tony_provider.runtime.checkpoint.content.torch_files import TorchFile
from tony_provider.runtime.checkpoint.content.zips import Unreadable
from tony_provider.runtime.checkpoint.save_view import (
    MANIFEST_SUFFIX,
    Save,
    SaveView,
    beside,
    join,
    names_a_checkpoint,
    step_in,
    step_of,
)
from tony_provider.runtime.jobspec.model import CheckpointFormat

_HDF5 = (".h5", ".hdf5")
_TRAINER_FILES = ("training_args.bin",)  # files of transformers that torch.load can read, but without a model


def find_files(view: SaveView) -> Iterator[Save]:
    """Yield one save for each file of a known format."""
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
        # Programs may overwrite such a file in place. A valid file may still contain old parts, so the reader proves
        # nothing.
        return _by_reader(view, path, "hdf5", CheckpointFormat.KERAS)
    if suffix == ".npy":
        return _by_reader(view, path, "npy", CheckpointFormat.NUMPY)
    if suffix in (".keras", ".npz", ".zip"):
        return None  # find_archives handles these files
    return _torch(view, path)


def _by_reader(view: SaveView, path: str, reader: str, kind: CheckpointFormat) -> Save:
    """Return the save in one file. The file is proven to be complete if the reader returns True."""
    try:
        proven = view.read(reader, path) is True
    except Unreadable as error:
        return Save(kind.value, path, (path,), problem=str(error))
    return Save(kind.value, path, (path,), step_of(path), proven=proven)


def _torch(view: SaveView, path: str) -> Optional[Save]:
    """Return the save, complete or not, if a file is from ``torch.save`` or safetensors. Otherwise return None.

    Other libraries also write pickles, and may append other data to them. Therefore, an unreadable pickle without
    PyTorch's magic number counts as a file of unknown format, not as an incomplete save.
    """
    has_suffix = path.endswith((*torch_files.SUFFIXES, ".bin"))
    beginning = view.begins(path, len(torch_files.OLD_MAGIC))
    is_zip, is_old = beginning.startswith(zips.ZIP_MAGIC), beginning == torch_files.OLD_MAGIC
    is_cut = has_suffix and any(
        magic.startswith(beginning) for magic in (zips.ZIP_MAGIC, torch_files.OLD_MAGIC)
    )  # also true for an empty file
    is_known = is_zip or is_old or is_cut or path.endswith(".safetensors")
    if not is_known and not beginning.startswith(torch_files.PICKLE):
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


_READERS = {
    ".keras": ("keras", CheckpointFormat.KERAS.value),
    ".npz": ("npz", CheckpointFormat.NUMPY.value),
    ".zip": ("zip", ""),
}


def find_archives(view: SaveView) -> Iterator[Save]:
    """Yield one save for each archive: ``.keras``, ``.npz``, ``.zip``."""
    for path in sorted(view.files):
        reader, kind = _READERS.get(splitext(path)[1], ("", ""))
        if not reader:
            continue
        try:
            inside: Optional[int] = view.read(reader, path)
        except Unreadable as error:
            yield Save(kind, path, (path,), problem=str(error))
        except FileNotFoundError:
            continue
        else:
            labelled = step_of(path)
            yield Save(kind, path, (path,), inside if labelled is None else labelled, proven=True, content_step=inside)


_METADATA = re.compile(r"(?:__[0-9]+)?\.metadata")  # last file of a PyTorch distributed checkpoint (DCP)
_SHARD = ".distcp"
_INDEX = ".index.json"
_PIECE = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.safetensors|\.bin)")
# Files of transformers, accelerate and DeepSpeed that each rank writes for itself.
_PER_RANK = re.compile(
    r"(?P<before>rng_state_|random_states_|(?:bf16_)?zero_pp_rank_)(?P<rank>[0-9]+)"
    r"(?P<after>\.pth|\.pkl|_mp_rank_00_(?:optim|model)_states\.pt)"
)
_TRAINER_STATE = "trainer_state.json"  # last file of a checkpoint of transformers
_TRAINER_DIRECTORY = re.compile(r"checkpoint-[0-9]+")
_TRAINER_FILE = re.compile(r"rng_state.*\.pth|training_args\.bin|scheduler\.pt")
_DEEPSPEED_MODEL = re.compile(r"mp_rank_[0-9]{2}_model_states\.pt")
_WEIGHTS, _EPOCH = "latest.weights.h5", "training_metadata.json"  # files of BackupAndRestore, in order of writing
_MOST_PIECES = 10_000


def find_directories(view: SaveView) -> Iterator[Save]:
    """Yield one save for each directory of Orbax, Keras or PyTorch that is a save as a whole."""
    yield from find_orbax(view)
    for directory, names in _by_directory(view).items():
        try:
            save = _keras(view, directory, names) or _torch_directory(view, directory, names)
        except Unreadable as error:
            save = Save(CheckpointFormat.PYTORCH.value, directory or ".", view.below(directory), problem=str(error))
        except FileNotFoundError:
            continue
        if save is not None:
            yield save


def _by_directory(view: SaveView) -> Mapping[str, list[str]]:
    """Return the names of the files directly in each directory, by directory."""
    found: dict[str, list[str]] = {}
    for path in sorted(view.files):
        found.setdefault(dirname(path), []).append(basename(path))
    return found


def _torch_directory(view: SaveView, directory: str, names: list[str]) -> Optional[Save]:
    """Return the save if a directory is a PyTorch checkpoint, otherwise None. Raises Unreadable, FileNotFoundError."""
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
    """Yield the path and minimum size of each file that a complete save with the file ``name`` must contain."""
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
    """Add the files of a distributed checkpoint to ``needs``. Return why it is incomplete, or an empty string."""
    metadata = [join(directory, name) for name in names if _METADATA.fullmatch(name)]
    written = min((view.files[path].mtime_ns for path in metadata), default=0)
    shards = [join(directory, name) for name in names if name.endswith(_SHARD)]
    newer = [path for path in shards if path not in view.foreign and view.files[path].mtime_ns > written]
    if not metadata or (newer and set(metadata) <= set(view.foreign)):  # restored metadata do not describe newer shards
        needs[join(directory, ".metadata")] = 1
        return ""
    for path in metadata:
        needs.update({beside(path, name): end for name, end in view.read("ends", path).items()})
    return f"{newer[0]} is newer than {metadata[0]}, which is written last" if newer else ""


def _keras(view: SaveView, directory: str, names: list[str]) -> Optional[Save]:
    """Return the save if a directory is from Keras 3's BackupAndRestore, otherwise None.

    Raises Unreadable, FileNotFoundError.
    """
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


ORBAX = CheckpointFormat.ORBAX.value
ORBAX_UNFINISHED = ".orbax-checkpoint-tmp"  # part of a directory's name until Orbax has finished the save
_STEP_METADATA, _SUCCESS, _VERSION_1 = "_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"
_TREE, _DATABASE = "_METADATA", "manifest.ocdbt"
_PROCESS = "ocdbt.process_"  # directory with a process's part of a database
_ARRAYS = (".zarray", "zarr.json")


def find_orbax(view: SaveView) -> Iterator[Save]:
    """Yield one save for each step directory of Orbax, and one incomplete save for each file of an unfinished save."""
    for root in sorted(_roots(view)):
        names = view.below(root)
        try:
            proven = _check(view, root, names)
        except Unreadable as error:
            yield Save(ORBAX, root, names, problem=str(error))
        except FileNotFoundError:
            continue
        else:
            yield Save(ORBAX, root, names, step_in(basename(root)), proven=proven)
    for path in view.files:
        if ORBAX_UNFINISHED in path:
            yield Save("", "", (path,), problem="Orbax has not given the directory its final name")


def _roots(view: SaveView) -> set[str]:
    """Return the step directories that are not inside another step directory."""
    found = set()
    for path in view.files:
        directory, name = dirname(path), basename(path)
        if ORBAX_UNFINISHED in path:
            continue
        if name in (_STEP_METADATA, _VERSION_1):
            found.add(directory)
        elif name in (_TREE, _DATABASE) and _PROCESS not in directory:
            # The directory is a step of an older Orbax version, or an item in the directory of a step.
            above = dirname(directory)
            found.add(above if above and names_a_checkpoint(basename(above)) else directory)
    return {root for root in found if root and not any(root.startswith(f"{other}/") for other in found)}


def _check(view: SaveView, root: str, names: tuple[str, ...]) -> bool:
    """Check a step directory, and return whether its metadata mark the step as complete.

    Raises FileNotFoundError, and Unreadable if the step is not complete.
    """
    metadata = join(root, _STEP_METADATA)
    is_marked = join(root, _SUCCESS) in view.files
    if metadata in view.files:
        if not view.read("step", metadata):
            raise Unreadable("Orbax has not committed it")
        is_marked = True
    for path in names:
        if basename(path) == _DATABASE:
            view.read("database", path)
            if not any(other.startswith(f"{beside(path, 'd')}/") for other in names):
                raise Unreadable(f"{dirname(path)} has no data")
        elif basename(path) == _TREE:
            _check_tree(view, path)
        elif f"/{_PROCESS}" in path:
            whole = path.partition(f"/{_PROCESS}")[0]
            if join(whole, _DATABASE) not in view.files:
                raise Unreadable(f"{whole} has no {_DATABASE}")
    return is_marked


def _check_tree(view: SaveView, path: str) -> None:
    """Check that all arrays of a tree are complete, or that the database with the arrays exists."""
    arrays = view.read("tree", path)
    if arrays is None and beside(path, _DATABASE) not in view.files:
        raise Unreadable(f"{beside(path, _DATABASE)} is missing")
    for array in arrays or ():
        _check_array(view, beside(path, array))


def _check_array(view: SaveView, directory: str) -> None:
    metadata: Optional[str] = next(
        (path for path in (join(directory, kind) for kind in _ARRAYS) if path in view.files), None
    )
    if metadata is None:
        raise Unreadable(f"{directory} is missing")
    wanted, pieces = view.read("array", metadata), len(view.below(directory)) - 1
    if pieces < wanted:
        raise Unreadable(f"{directory} has {pieces} of {wanted} pieces")


_TENSORFLOW_INDEX = ".index"
_VARIABLES = "variables/variables"  # prefix of the tensor bundle in a SavedModel
_CHIEF = "chief"  # directory into which BackupAndRestore of tf_keras saves


def find_tensorflow(view: SaveView) -> Iterator[Save]:
    """Yield one save for each index of a tensor bundle."""
    for path in sorted(view.files):
        if path.endswith(_TENSORFLOW_INDEX) and not basename(path).startswith("."):
            try:
                yield _tensorflow_save(view, path)
            except FileNotFoundError:
                continue


def _tensorflow_save(view: SaveView, index: str) -> Save:
    prefix = index[: -len(_TENSORFLOW_INDEX)]
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
    shards = [
        tensorflow_files.shard_name(prefix, number, len(sizes))
        for number in range(min(len(sizes), len(view.files) + 1))
    ]
    needs = dict(zip(shards, sizes))
    files = (index, *(path for path in shards if path in view.files))
    if entry == prefix:
        return Save(kind.value, entry, files, step_in(basename(prefix)), proven=True, needs=needs)
    definition = "saved_model.pb" if entry == "." else f"{entry}/saved_model.pb"
    return Save(kind.value, entry, files, step_of(entry), needs={**needs, definition: 1})


MANIFEST = CheckpointFormat.MANIFEST.value


def find_manifests(view: SaveView) -> Iterator[Save]:
    """Yield one save for each manifest that a program wrote. The manifest is the first file of the save."""
    for path in sorted(view.files):
        if path.endswith(MANIFEST_SUFFIX):
            try:
                yield _manifest_save(view, path)
            except Unreadable as error:
                yield Save(MANIFEST, "", (path,), problem=str(error), is_manifest=True)
            except FileNotFoundError:
                continue


def _manifest_save(view: SaveView, manifest: str) -> Save:
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
    newer = [path for path in files if view.files[path].mtime_ns > view.files[manifest].mtime_ns]
    if newer:  # the program has begun a later save, which replaces these files
        return Save("", "", (manifest, *newer), is_manifest=True)
    return Save(MANIFEST, join(place, entry), files, step, problem, proven=True, is_manifest=True, content_step=step)


def _checksum(view: SaveView, path: str, wanted: str) -> str:
    try:
        algorithm = algorithm_of(wanted)
    except UnknownChecksum as error:
        raise Unreadable(f"it is not a manifest of a checkpoint ({error})") from error
    return str(view.read(f"checksum {algorithm}", path))

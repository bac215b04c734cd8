"""Find the saves in a checkpoint directory, and saves that a program writes elsewhere by mistake."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.artifacts.manifest import FileVersion, Tree
from tony_provider.runtime.checkpoint import save_formats
from tony_provider.runtime.checkpoint.consistency import Verified
from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.save_view import Read, ReadCache, Save, SaveView, is_temporary, step_in
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import CheckpointFormat

log = logging.getLogger(__name__)


__all__ = ["Read", "Save", "SaveFinder", "Saves"]


# Functions that find saves, each with the rank of its kind of save. If a directory has saves of several kinds, a
# program resumes from the kind with the lowest rank. NumPy files come last (see SaveFinder.find), because they often
# contain other data.
_KINDS: Mapping[Callable[[SaveView], Iterable[Save]], int] = {
    save_formats.find_manifests: 0,
    save_formats.find_directories: 1,
    save_formats.find_tensorflow: 2,
    save_formats.find_archives: 3,
    save_formats.find_files: 3,
}


@attrs.frozen
class Saves:
    """All saves in known formats that a scan of a directory found."""

    saves: Sequence[Save]
    view: SaveView

    def verified(self, *, alone: bool) -> Verified:
        """Return which files of the directory are complete or incomplete.

        ``alone``: whether this task writes all files of a save, so that a missing file is a problem. If not, a
        missing file may be in the directory of another task.
        """
        whole: set[str] = set()
        broken: dict[str, str] = {}
        for save in self.saves:
            if problem := save.problem or (self._missing(save) if alone else ""):
                broken.update(dict.fromkeys(save.files, problem))
            elif save.proven:
                whole.update(save.files)
        declared = {
            save.files[0]: save.files[1:]
            for save in self.saves
            if save.is_manifest and save.proven and not set(save.files) & set(broken)
        }
        listed = {path for save in self.saves if save.is_manifest for path in save.files[1:]}
        outdated = listed - {path for paths in declared.values() for path in paths} - set(broken)
        return Verified(whole - set(broken), broken, declared, outdated)

    def loadable(self, *, alone: bool) -> Optional[Save]:
        """Return the newest complete save that a framework can load, or None if there is none.

        Saves inside another save's directory are ignored. A save named "best" is returned only if there is no other.
        """
        damaged = {path for save in self.saves if save.problem for path in save.files}
        roots = [save.entry for save in self.saves if save.entry in self.view.directories]
        outer = [
            save
            for save in self.saves
            if save.format and save.entry and not any(save.entry.startswith(f"{root}/") for root in roots)
            if not damaged & set(save.files) and not (alone and self._missing(save))
            if save.is_manifest or not any(map(is_temporary, save.entry.split("/")))
        ]
        if not outer:
            return None
        first = min(save.preference for save in outer)
        return max(
            (save for save in outer if save.preference == first),
            key=lambda save: (not save.is_best, self.view.newest_time(save.files), save.entry),
        )

    def _missing(self, save: Save) -> str:
        for path, size in sorted(save.needs.items()):
            version = self.view.files.get(path)
            if version is None:
                return f"{path} is missing"
            if version.size < size:
                return f"{path} has {version.size} bytes instead of {size}"
        return ""


class SaveFinder:
    """Finds the saves of one directory. Repeated calls read only the files that have changed. Not thread-safe."""

    def __init__(self, directory: Path, *, world_size: int = 1, reading: Read = read_here) -> None:
        """``world_size``: number of processes with a rank, each of which may write some files of a save."""
        self._directory = directory
        self._world_size = world_size
        self._cache = ReadCache(reading)
        self._faults: set[str] = set()

    def find(self, tree: Tree, foreign: Collection[str] = ()) -> Saves:
        """Return the saves in a scanned tree of the directory. Blocks, and reads the files. Raises OSError.

        ``foreign``: paths that a restore has copied from snapshots of other tasks.
        """
        found_files = tree.files
        self._cache.keep(found_files)
        view = SaveView(
            self._directory,
            {path: node.version for path, node in found_files.items()},
            frozenset(path for path in tree.nodes if path not in found_files),
            self._world_size,
            self._cache,
            foreign,
        )
        found = [
            attrs.evolve(save, preference=preference if save.format != CheckpointFormat.NUMPY.value else len(_KINDS))
            for find, preference in _KINDS.items()
            for save in self._found(find, view)
        ]
        return Saves(found, view)

    def _found(self, find: Callable[[SaveView], Iterable[Save]], view: SaveView) -> Iterator[Save]:
        try:
            yield from find(view)
        except OSError:
            raise
        except Exception:  # an internal error of one function must not prevent the others from finding saves
            name = find.__qualname__
            if name not in self._faults:
                self._faults.add(name)
                log.exception("internal error in %s", name)


_DIRECTORY = f'os.environ["{contract.ENV_CHECKPOINT_DIR}"]'
# Patterns of paths, each with the advice for matching paths. The first matching pattern applies.
_REMEDIES = [
    (r"(?:^|/)lightning_logs/", f"Lightning: Trainer(default_root_dir={_DIRECTORY})"),
    (r"(?:^|/)epoch=[^/]*\.ckpt$", f"Lightning: ModelCheckpoint(dirpath={_DIRECTORY})"),
    (r"(?:^|/)runs/[a-z]+/[^/]+/weights/", f"ultralytics: model.train(project={_DIRECTORY})"),
    (
        r"(?:^|/)checkpoint-[0-9]+/|(?:^|/)trainer_state\.json$",
        f"transformers: TrainingArguments(output_dir={_DIRECTORY})",
    ),
    (
        r"(?:^|/)checkpoint_[0-9]+/(?:model|optimizer|pytorch_model|random_states|scheduler)",
        f"accelerate: Accelerator(project_dir={_DIRECTORY})",
    ),
    (r"(?:mp_rank_[0-9]+_model|_optim)_states\.pt$", f"DeepSpeed: engine.save_checkpoint({_DIRECTORY})"),
    (r"\.distcp$", f"torch.distributed.checkpoint: save(…, checkpoint_id={_DIRECTORY} + f'/step-{{step}}')"),
    (r"(?:^|/)rl_model_[0-9]+_steps", f"stable-baselines3: CheckpointCallback(save_path={_DIRECTORY})"),
    (r"\.(?:keras|weights\.h5)$", f"Keras: ModelCheckpoint(filepath={_DIRECTORY} + '/…')"),
    (r"\.index$", f"TensorFlow: CheckpointManager(checkpoint, {_DIRECTORY})"),
    (r"(?:_checkpoint_metadata|commit_success\.txt)$", f"Orbax: CheckpointManager({_DIRECTORY})"),
    (r"\.pdparams$", f"Paddle: paddle.save(…, {_DIRECTORY} + '/…')"),
    (r"(?:^|/)checkpoint_(?:last|best|[0-9_]+)\.pt$", f'fairseq: --save-dir "${contract.ENV_CHECKPOINT_DIR}"'),
]


def save_remedy(path: str) -> str:
    """Return advice for the user of a program that saved a file with this path outside the checkpoint directory."""
    for pattern, text in _REMEDIES:
        if re.search(pattern, path, re.IGNORECASE):
            return f"save into {contract.ENV_CHECKPOINT_DIR} instead. {text}"
    return f"have the program write its checkpoints into the directory {contract.ENV_CHECKPOINT_DIR}"


QUIET_NS = 3 * 10**9  # time without a change after which a file counts as complete
_APART_NS = 5 * 10**9  # numbered files written at shorter intervals count as pieces of a data set, not as saves
_MOST_NUMBERED = 100  # numbered files in a series of saves; a longer series counts as a data set
_MOST_FILES = 10_000  # maximum number of files to track
_RESUMED_NS = 30 * 10**9  # maximum pause within a download; a file that grows after a longer pause is a new version

_NAMES = re.compile(
    r".*\.(?:pt|pth|ckpt|safetensors|keras|h5|hdf5|distcp|index|msgpack|pdparams)|.*\.(?:pt|pth|ckpt)\.tar"
    r"|(?:pytorch_model|optimizer|model)\.bin|trainer_state\.json|commit_success\.txt|_checkpoint_metadata",
    re.IGNORECASE,
)
# Files with these suffixes are often data, so they count as checkpoints only if their paths match _CALLED_SAVE.
_OTHERS = re.compile(r".*\.(?:zip|npz|pkl|pickle|joblib|bin|json|ubj|model|pb|tar)", re.IGNORECASE)
_SAVE = r"(?:(?:global[-_]?)?step|iter|iteration|epoch|ep|ckpt|checkpoint|snapshot)s?"
_CALLED_SAVE = re.compile(rf"(?:^|[^a-z]){_SAVE}(?:$|[^a-z])")
_NUMBERED_SAVE = re.compile(rf"(?:^|[^a-z]){_SAVE}[-_=.]?[0-9]+|(?:^|[^a-z])[0-9]+[-_]?steps(?:$|[^a-z])")
_PIECE = re.compile(r"[0-9]{5}-of-[0-9]{5}")  # part of the file name if a model has several files
_ANY_NUMBER = re.compile(r"[0-9]+")
_APPENDED = (".h5", ".hdf5")  # suffixes of files to which programs may append data for hours


@attrs.frozen
class Stray:
    """The first save that a program wrote into its working directory."""

    path: str
    written_ns: int  # epoch


def may_be_save(path: str) -> bool:
    """Return whether a file may belong to a checkpoint, judged by its path."""
    *directories, name = path.split("/")
    if any(map(is_temporary, path.split("/"))):
        return False
    called_save = any(_CALLED_SAVE.search(_ANY_NUMBER.sub("", part.lower())) for part in (*directories[-2:], name))
    return bool(_NAMES.fullmatch(name)) or (bool(_OTHERS.fullmatch(name)) and called_save)


@attrs.define
class _File:
    version: FileVersion
    completed: list[int] = attrs.field(factory=list)  # modification times of the file's complete versions, epoch ns


class StraySaves:
    """Detects checkpoints that a program writes into its working directory, where they are lost with the container.

    A file counts as a save in three cases:

    - It has the name of a numbered save, such as ``checkpoint-500/model.safetensors``.
    - The program has written it twice.
    - It is one of several numbered files that were written at different times.
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._found: Optional[Stray] = None

    def observe(self, files: Mapping[str, FileVersion], now_ns: int, *, ended: bool = False) -> Optional[Stray]:
        """Record the current files. Return the first save that the program wrote into the working directory, or None.

        ``files``: files written since the processes started. ``now_ns``: the time by the clock of the file system.
        ``ended``: whether the processes have ended. If so, all files count as complete.
        """
        for path, version in files.items():
            self._note(path, version, now_ns, ended=ended)
        if self._found is None:
            self._found = self._find()
        return self._found

    def _note(self, path: str, version: FileVersion, now_ns: int, *, ended: bool) -> None:
        known = self._files.get(path)
        if known is None:
            if len(self._files) >= _MOST_FILES:
                return
            known = self._files[path] = _File(version)
        before = known.version
        if before.without_ctime != version.without_ctime:
            if not _may_be_the_same(path, before, version):
                self._complete(known, before)
            elif known.completed[-1:] == [before.mtime_ns]:
                known.completed.pop()  # the file has only grown, so the previous version was not complete
            known.version = version
        if ended or now_ns - version.mtime_ns > QUIET_NS:
            self._complete(known, version)

    def _complete(self, known: _File, version: FileVersion) -> None:
        if known.completed[-1:] != [version.mtime_ns]:
            known.completed.append(version.mtime_ns)

    def _find(self) -> Optional[Stray]:
        series: dict[str, list[Stray]] = {}
        for path, file in self._files.items():
            if not file.completed:
                continue
            first = Stray(path, file.completed[0])
            if len(file.completed) > 1 or _is_numbered_save(path):
                return first
            if step_in(path.rpartition("/")[2].partition(".")[0]) is not None and not _PIECE.search(path):
                series.setdefault(_ANY_NUMBER.sub("#", path), []).append(first)
        for strays in series.values():
            strays.sort(key=lambda stray: stray.written_ns)
        return next((strays[0] for strays in series.values() if _are_saves(strays)), None)


def _may_be_the_same(path: str, before: FileVersion, after: FileVersion) -> bool:
    """Return whether ``after`` may be the same save or download as ``before``, with more data at the end."""
    if (before.device, before.inode) != (after.device, after.inode) or after.size <= before.size:
        return False
    return after.mtime_ns - before.mtime_ns < _RESUMED_NS or path.endswith(_APPENDED)


def _is_numbered_save(path: str) -> bool:
    return any(_NUMBERED_SAVE.search(_PIECE.sub("", part.lower())) for part in path.split("/"))


def _are_saves(strays: list[Stray]) -> bool:
    apart = zip(strays, strays[1:])
    return len(strays) <= _MOST_NUMBERED and any(two.written_ns - one.written_ns > _APART_NS for one, two in apart)

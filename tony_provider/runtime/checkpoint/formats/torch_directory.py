"""PyTorch's checkpoints that are a directory each.

These are distributed checkpoints (DCP, FSDP), those of Hugging Face's Trainer and Accelerate, of DeepSpeed and
Megatron, and any others whose name is that of a checkpoint.

A distributed checkpoint lists its files and their lengths in ``.metadata``, which is written last. DeepSpeed and
Megatron name the newest complete directory in a file beside it. The others say nowhere that they are written to their
end: they must hold what the one before them held, or be followed by another, or have been left alone for a while.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from posixpath import basename, dirname

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint
from tony_provider.runtime.checkpoint.content import torch_file
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.checkpoint.formats.pytorch import suffix_of
from tony_provider.runtime.checkpoint.formats.step_names import names_a_checkpoint
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.PYTORCH
LEFT_ALONE = 30.0  # seconds; between two of its files a program may gather what other processes have
_TRACKERS = ("latest", "latest_checkpointed_iteration.txt")  # DeepSpeed's, Megatron's
_METADATA = re.compile(r"(?:__[0-9]+)?\.metadata")
_SHARD = ".distcp"
_INDEX = ".index.json"
_PIECE = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.(?:safetensors|bin)$")
_ITERATION = re.compile(r"iter_[0-9]{1,19}")
_LONGEST_TRACKER = 1000  # bytes


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are a directory of PyTorch each, the oldest first."""
    trackers = {name: _read_tracker(view, name) for name in view.files if basename(name) in _TRACKERS}
    named = {join(dirname(tracker), text): tracker for tracker, text in trackers.items()}
    roots = sorted(_roots(view, named), key=lambda root: view.step(root) or 0)
    complete: list[LocalCheckpoint] = []
    for place, root in enumerate(roots):
        is_followed = dirname(root) in map(dirname, roots[place + 1 :])
        finding = _Directory(view, root, named.get(root, ""), trackers, is_followed).look(complete)
        if isinstance(finding, LocalCheckpoint):
            complete.append(finding)
        yield finding
    yield Pending(tuple(tracker for root, tracker in named.items() if root in roots))


def join(*parts: str) -> str:
    """A path in the view, of its parts; empty ones are left out."""
    return "/".join(filter(None, parts))


def _roots(view: View, named: Iterable[str]) -> set[str]:
    """The directories that are checkpoints, none below another."""
    found = {root for root in named if root in view.directories}
    for name in view.files:
        directory = dirname(name)
        is_dcp = name.endswith(_SHARD) or _METADATA.fullmatch(basename(name))
        if is_dcp or name.endswith(_INDEX):
            found.add(_topmost(directory) or directory)
        elif suffix_of(name) and not names_a_checkpoint(basename(name)[: -len(suffix_of(name))]):
            found.update(filter(None, [_topmost(directory)]))
    return {root for root in found if not any(is_below(root, other) for other in found)}


def is_below(path: str, directory: str) -> bool:
    """Whether a path in the view lies below a directory that is not the view's own."""
    return bool(directory) and path.startswith(f"{directory}/")


def _topmost(directory: str) -> str:
    """The highest directory on the way whose name is a checkpoint's; empty when there is none."""
    parts = directory.split("/")
    return next(("/".join(parts[: at + 1]) for at, part in enumerate(parts) if names_a_checkpoint(part)), "")


def _read_tracker(view: View, name: str) -> str:
    """The directory's name in it; empty when it is something else."""
    try:
        text = view.remember("tracker", (name,), lambda: _beginning(view.path(name)))
        word = text.decode().strip()
    except (Unreadable, FileNotFoundError, UnicodeDecodeError):
        return ""
    is_number = word.isdecimal() and len(word) < 20 and basename(name) != "latest"
    return f"iter_{int(word):07d}" if is_number else word


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST_TRACKER)


@attrs.frozen
class _Directory:
    view: View
    root: str
    tracker: str  # the file that names it as the newest complete one; empty: none does
    trackers: dict[str, str]
    is_followed: bool  # by another one beside it, with a higher step

    def look(self, former: list[LocalCheckpoint]) -> Finding:
        view, root = self.view, self.root
        names = view.below(root) if root else [name for name in sorted(view.files) if "/" not in name]
        try:
            if view.is_shrinking(root, names):
                return Pending(tuple(names))
            lists_all = self._check(names)
        except Unreadable as error:
            return view.not_complete(names, f"{root or '.'}: {error}")
        except FileNotFoundError:
            return Pending(tuple(names))
        if not (lists_all or self.tracker or self._has_ended(names, former)):
            return Pending(tuple(names))
        view.is_whole(root, names)
        return view.complete(view.step(root), KIND.value, root or ".", names, self._generated())

    def _check(self, names: list[str]) -> bool:
        """Whether it says by itself that it is written to its end."""
        directories = {dirname(name) for name in names if name.endswith(_SHARD)}
        listed = set()
        for name in names:
            if _METADATA.fullmatch(basename(name)):
                self._check_listed(name)
                listed.add(dirname(name))
            elif name.endswith(_INDEX):
                self._check_index(name)
            elif suffix_of(name) or (name.endswith(".bin") and self._begins_well(name)):
                self.view.read_part("torch", name)
            if _PIECE.search(name) and not any(other.endswith(_INDEX) for other in names):
                raise Unreadable("its index, which is written last, is missing")
        if self.view.part:
            return bool(directories) and self.view.is_quiet(names)
        if directories - listed:
            raise Unreadable("its .metadata, which is written last, is missing")
        return all(name.endswith(_SHARD) or _METADATA.fullmatch(basename(name)) for name in names)

    def _begins_well(self, name: str) -> bool:
        return self.view.remember("begins", (name,), lambda: torch_file.looks_like_one(self.view.path(name)))

    def _check_listed(self, metadata: str) -> None:
        ends = self.view.read_part("ends", metadata)
        for name, end in ends.items():
            stamp = self.view.files.get(join(dirname(metadata), name))
            if stamp is None and not self.view.part:
                raise Unreadable(f"{name} is missing")
            if stamp is not None and stamp.size < end:
                raise Unreadable(f"{name} has {stamp.size} bytes instead of {end}")

    def _check_index(self, index: str) -> None:
        shards = self.view.read_part("shards", index)
        missing = [name for name in shards if join(dirname(index), name) not in self.view.files]
        if missing and not self.view.part:
            raise Unreadable(f"{missing[0]} is missing")

    def _has_ended(self, names: list[str], former: list[LocalCheckpoint]) -> bool:
        """Whether the program has turned to something else; nothing says so for sure."""
        view = self.view
        beside = [one for one in former if dirname(one.entry) == dirname(self.root) and one.entry != "."]
        if self.is_followed:
            return view.is_quiet(names)
        if beside:
            had_all = _pattern(beside[-1].stamps, beside[-1].entry) <= _pattern(names, self.root)
            return had_all and view.is_quiet(names)
        return attrs.evolve(view, now=min(view.now, time.time()) - LEFT_ALONE).is_quiet(names)

    def _generated(self) -> dict[str, bytes]:
        """The file beside it that names the newest, if there is one, naming this one."""
        for tracker in self.trackers:
            if dirname(tracker) == dirname(self.root) and self.root:
                name = basename(self.root)
                if basename(tracker) == "latest":
                    return {tracker: name.encode()}
                if _ITERATION.fullmatch(name):
                    return {tracker: str(int(name[len("iter_") :])).encode()}
        return {}


def _pattern(names: Iterable[str], root: str) -> set[str]:
    return {re.sub(r"[0-9]+", "#", name[len(root) :]) for name in names}

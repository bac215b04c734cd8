"""TensorFlow's checkpoints (``tf.train.Checkpoint``, CheckpointManager, Saver): an index, its data files, a state file.

The state file ``checkpoint`` names the newest of its directory and others beside it, so each checkpoint travels with
one that names it alone. A tensor's bytes are not summed up here: TensorFlow does that when it loads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Optional

from tony_provider.runtime.checkpoint.content import bundle
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.spec.model import CheckpointFormat

STATE_FILE = "checkpoint"
_INDEX = ".index"
_DATA = ".data-"
_SAVED_MODEL = "saved_model.pb"
_VARIABLES = "variables/variables"  # of a saved model


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are TensorFlow's."""
    for name in sorted(view.files):
        if name.endswith(_INDEX) and not basename(name).startswith("."):
            yield from find_one(view, name[: -len(_INDEX)])
    yield Pending(tuple(name for name in view.files if basename(name) == STATE_FILE))


def find_one(view: View, prefix: str, kind: CheckpointFormat = CheckpointFormat.TENSORFLOW) -> Iterator[Finding]:
    """Finding: the checkpoint that ``<prefix>.index`` is of, if that is still there."""
    directory = _saved_model(prefix)
    try:
        names = _needed(view, prefix)
    except Unreadable as error:
        there = [name for name in view.files if name.startswith((prefix + _INDEX, prefix + _DATA))]
        yield view.not_complete(sorted(there), f"{prefix}: {error}")
        return
    except FileNotFoundError:
        return
    missing = [name for name in names if name not in view.files]
    if missing:
        there = [name for name in names if name in view.files]
        yield view.not_complete(there, f"{prefix}: {missing[0]} is missing")
    elif directory is None:
        yield _complete(view, prefix, names, kind)
    else:
        yield _whole_directory(view, directory)


def _complete(view: View, prefix: str, names: list[str], kind: CheckpointFormat) -> Finding:
    state = "/".join(filter(None, (dirname(prefix), STATE_FILE)))
    generated = {} if state in view.directories else {state: _state(basename(prefix))}
    step = view.step(prefix)
    graph = [name for name in (prefix + ".meta",) if name in view.files]
    return view.complete(step, kind.value, prefix, [*names, *graph], generated)


def _needed(view: View, prefix: str) -> list[str]:
    """The files of a checkpoint as its index says, those that are too short or not there yet among them.

    Raises Unreadable when the index, or a data file, is not whole; FileNotFoundError when the index has gone.
    """
    index = prefix + _INDEX
    sizes = view.read("bundle", index)
    if len(sizes) > len(view.files):
        least = len(sizes) - len(view.files)
        raise Unreadable(f"at least {least} of its {len(sizes)} data files are missing")
    names = [bundle.shard_name(prefix, shard, len(sizes)) for shard in range(len(sizes))]
    for name, size in zip(names, sizes):
        stamp = view.files.get(name)
        if stamp is not None and stamp.size < size:
            raise Unreadable(f"{name} has {stamp.size} bytes instead of {size}")
    return [index, *names]


def _state(name: str) -> bytes:
    """A CheckpointState in protobuf's text form."""
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return f"model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n".encode()


def _saved_model(prefix: str) -> Optional[str]:
    """The directory of the saved model that this bundle would be the variables of."""
    return prefix[: -len(_VARIABLES)].rstrip("/") if f"/{prefix}".endswith(f"/{_VARIABLES}") else None


def _whole_directory(view: View, directory: str) -> Finding:
    names = view.below(directory)
    definition = "/".join(filter(None, (directory, _SAVED_MODEL)))
    # Nothing in it says that it is written to its end.
    if definition not in view.files or not view.is_quiet(names):
        return Pending(tuple(names))
    return view.complete(view.step(directory), CheckpointFormat.TENSORFLOW.value, directory or ".", names)

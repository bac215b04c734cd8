"""Optional helper for code that trains in a tony job; put ``import tony_sdk`` into your script.

    import tony_sdk

    if tony_sdk.resume_from():
        model = load(tony_sdk.resume_from())
    for step in range(tony_sdk.resume_step(), total):
        ...
        tony_sdk.report(step + 1, total, loss=loss)
        if step % 1000 == 999 or tony_sdk.checkpoint_requested():
            path = os.path.join(tony_sdk.checkpoint_dir() or "out", f"model-{step + 1}")
            save(model, path)
            tony_sdk.commit_checkpoint(step + 1, path)
    model.save(os.path.join(tony_sdk.model_dir() or "out", "model.keras"))

``for step in tony_sdk.track(range(total), resume=True)`` reports by itself, and so do callbacks for Keras, Lightning
and transformers: ``keras_callback``, ``lightning_callback``, ``transformers_callback``.

Needs nothing but Python 3.8. Outside a job it does nothing and raises nothing, so the same script runs on a laptop.
All of it is a thin cover over the TONY_* variables, which code in any language can use instead.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union

if TYPE_CHECKING:
    from tony_provider.runtime.sdk import tony_inputs, tony_progress

    Read = Callable[[tony_inputs.TaskShard], Iterable[Any]]

Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskInfo:
    """Which task of the job this process is."""

    type: str  # chief, worker, ps, evaluator, …
    index: int  # among the tasks of its type, from 0
    rank: Optional[
        int
    ]  # over the processes of the whole cluster, chief first, then workers; None for evaluators and side-cars
    world_size: int  # how many processes have a rank
    local_rank: int = 0  # of the process in its container, from 0
    local_world_size: int = 1  # how many processes its container runs


def task() -> Optional[TaskInfo]:
    """Which task of the job this process is; None outside a job."""
    index, world_size = _number("TONY_TASK_INDEX"), _number("TONY_WORLD_SIZE")
    task_type = os.environ.get("TONY_TASK_TYPE")
    if not task_type or index is None or world_size is None:
        return None
    local_rank, local_world_size = _number("TONY_LOCAL_RANK") or 0, _number("TONY_LOCAL_WORLD_SIZE") or 1
    return TaskInfo(task_type, index, _number("TONY_RANK"), world_size, local_rank, local_world_size)


def model_dir() -> Optional[str]:
    """A local directory: what the chief, or else the first worker, leaves here becomes the job's model.

    The other tasks have one, too, which is thrown away. None outside a job.
    """
    return os.environ.get("TONY_MODEL_DIR") or None


def checkpoint_dir() -> Optional[str]:
    """Return the directory for this training's checkpoints, or None outside a job.

    A restarted program finds the directory as it was when the last snapshot of it was stored."""
    return os.environ.get("TONY_CHECKPOINT_DIR") or None


def resume_from() -> Optional[str]:
    """Return the path that a framework can load to resume: a file, a directory, or TensorFlow's prefix.

    Return None when training begins at step 0, when no framework is known to load what was saved, and outside a job.
    """
    return os.environ.get("TONY_RESUME_FROM") or None


def resume_step() -> int:
    """Return the step of the checkpoint to resume from, or 0 if there is none."""
    return _number("TONY_RESUME_STEP") or 0


def tensorboard_dir() -> Optional[str]:
    """A local directory for event files: what is written there is copied to the store. None outside a job."""
    return os.environ.get("TONY_TENSORBOARD_DIR") or None


def warm_start() -> Optional[str]:
    """A local directory with an earlier model's files, to take initial weights from at step 0. Mostly None."""
    return os.environ.get("TONY_WARM_START") or None


def checkpoint_requested() -> bool:
    """Return whether a checkpoint is requested now, once for each request.

    The job requests checkpoints before preemptions, suspensions and resizes, and on a user's request. The call takes
    microseconds, so call it after each step.
    """
    return _taken("TONY_CHECKPOINT_REQUEST")


def commit_checkpoint(step: int, *paths: Union[str, os.PathLike[str]]) -> bool:
    """State that a checkpoint is complete, so that a snapshot is taken at once and contains it.

    ``paths``: files and directories below ``checkpoint_dir()``; relative paths are relative to it. ``resume_from()``
    will name the first one. Do not change them afterwards; you may remove them when a newer checkpoint exists. Without
    this call, a snapshot is taken when the directory has not changed for a few seconds.

    Return whether the call had an effect: False outside a job and if the disk is full. Raises ValueError for a negative
    step, and for paths that are missing, not below that directory, or links.
    """
    directory = checkpoint_dir()
    if directory is None:
        return False
    number = int(step)
    if number < 0 or not paths:
        raise ValueError("commit_checkpoint wants a step from 0 on, and the paths of a checkpoint")
    top = Path(directory).resolve()
    found = [_below(top, Path(directory, path)) for path in paths]
    files = {file: file.stat().st_size for path in found for file in _files(path)}
    if not files:
        raise ValueError(f"commit_checkpoint: there are no files in {', '.join(map(str, paths))}")
    manifest = {
        "step": number,
        "entry": found[0].relative_to(top).as_posix(),
        "files": [{"path": file.relative_to(top).as_posix(), "size": files[file]} for file in sorted(files)],
    }
    return _write_whole(top / f"step-{number}.tony.json", json.dumps(manifest).encode())


def export_requested() -> bool:
    """Whether an export of the model is wanted now: somebody asked, or the job wants one now and then. Says so once.

    Of all processes the chief's, or rank 0's, alone is asked. Costs microseconds: ask after each step.
    """
    return _taken("TONY_EXPORT_REQUEST")


@contextmanager
def export(step: int) -> Iterator[str]:
    """A directory to export the model into, for whoever wants it before the training ends::

        if tony_sdk.export_requested():
            with tony_sdk.export(step) as directory:
                model.save(os.path.join(directory, "model.keras"))

    It is empty and local. At the end of the block it is whole, and is copied to the store in the background; after an
    error in the block it is thrown away, and so it is outside a job, and in every process but the chief's or rank 0's.
    Of one step the first export counts.

    Raises ValueError for a step that is no number from 0 on, OSError when the disk is full.
    """
    number = int(step)
    if number < 0:
        raise ValueError("export wants a step from 0 on")
    top = os.environ.get("TONY_EXPORT_DIR") or None
    aside = Path(tempfile.mkdtemp(prefix=".export-", dir=top))
    try:
        yield str(aside)
        if top is not None and not Path(top, f"step-{number}").exists():
            aside.rename(Path(top, f"step-{number}"))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def inputs(
    name: str, local: Union[str, Iterable[str], None] = None, format: Optional[str] = None
) -> Iterator[tony_inputs.TaskShard]:
    """The shards of an input of the job that are dealt to this task, one after the other; see ``tony_inputs``.

    ``local`` is what to read outside a job: a pattern of files, or their paths; ``format`` is theirs. Wants
    ``tony_inputs.py`` beside it, and ``tony_records.py`` for their records.
    """
    shards: Iterator[tony_inputs.TaskShard] = importlib.import_module("tony_inputs").inputs(name, local, format)
    return shards


def output(name: str, local: Union[str, os.PathLike[str], None] = None) -> str:
    """A local directory: what this task has left in it when it ends well becomes part of that output of the job.

    It is empty when the program starts; the processes of a container share it. ``local`` is the directory to use
    outside a job, which is made where it is missing. Raises ValueError when the job has no such output for this task
    type, and outside a job without ``local``.
    """
    directory = os.environ.get("TONY_OUTPUT_" + name.upper())
    if directory:
        return directory
    if os.environ.get("TONY_TASK_TYPE"):
        raise ValueError(f"the job has no output {name!r} for this task type")
    if local is None:
        raise ValueError(f"output {name!r}: this is no task of a job; say local=… for where to write then")
    Path(local).mkdir(parents=True, exist_ok=True)
    return os.fspath(local)


def batches(name: str, size: int, read: Optional[Read] = None, **outside: Any) -> Iterator[list[Any]]:
    """Lists of ``size`` examples of an input, the last one of each shard perhaps shorter; see ``tony_inputs``.

    ``read`` is a function that takes a shard and yields examples; default: its records. ``outside`` are ``local`` and
    ``format``, see ``inputs``. With a queue a shard is committed when the loop comes for the batch after its last one.
    """
    made: Iterator[list[Any]] = importlib.import_module("tony_inputs").batches(name, size, read, **outside)
    return made


def tf_dataset(name: str, read: Optional[Read] = None, signature: Any = None, **outside: Any) -> Any:
    """A ``tf.data.Dataset`` of the examples of this task's part of an input; see ``tony_inputs``.

    ``signature`` is what one is, as ``output_signature`` of ``from_generator`` wants it; default: bytes. ``read`` and
    ``outside`` as for ``batches``. Raises InputError for a queue.
    """
    return importlib.import_module("tony_inputs").tf_dataset(name, read, signature, **outside)


def torch_dataset(name: str, read: Optional[Read] = None, **outside: Any) -> Any:
    """A PyTorch ``IterableDataset`` of the examples of this task's part of an input; see ``tony_inputs``.

    The processes of a ``DataLoader`` divide the shards among themselves. ``read`` and ``outside`` as for ``batches``.
    Raises InputError for a queue.
    """
    return importlib.import_module("tony_inputs").torch_dataset(name, read, **outside)


def report(step: Optional[int] = None, total_steps: Optional[int] = None, **metrics: Any) -> bool:
    """Tell the job how far this task is; the newest counts. ``metrics`` are numbers, or arrays of one number.

    Without a step it is that of the loop of ``track`` which runs, and its total; outside of one, metrics alone.

    Costs microseconds, but need not be called more than about once a second. Returns whether it was written: not
    outside a job, and not when the disk is full. Values that are no numbers are left out.
    """
    path = os.environ.get("TONY_METRICS_FILE")
    if not path:
        return False
    try:
        line = {name: number for name, number in ((n, _plain(v)) for n, v in metrics.items()) if number is not None}
        if step is None:
            step, total_steps = _of_loop(total_steps)
        if step is not None:
            line["step"] = int(step)
        if total_steps is not None:
            line["total_steps"] = int(total_steps)
        data = (json.dumps(line) + "\n").encode()
        # One write in append mode: lines of several threads or processes do not mix. No lock: a child that is forked
        # while another thread holds it would wait for ever.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except Exception:  # noqa: BLE001 - a step may raise anything when it is read, and no report is worth a training
        return False
    return True


def _of_loop(total_steps: Optional[int]) -> tuple[Optional[int], Optional[int]]:
    """The step and the total of the loop that runs, if any does."""
    module = sys.modules.get("tony_progress")
    loop = module.innermost() if module is not None else None
    if loop is None:
        return None, total_steps
    return loop.step, loop.total if total_steps is None else total_steps


def track(
    items: Iterable[Item],
    total: Optional[int] = None,
    start: Optional[int] = None,
    *,
    resume: bool = False,
    stop: bool = False,
) -> tony_progress.Track[Item]:
    """A loop over the same items, whose progress the job sees: ``for batch in tony_sdk.track(loader)``.

    An item is a step; it is done when the loop comes for the next one. About once a second steps and ``total`` are
    reported, and the share of time that was waited for items as the metric ``input_wait``, from 0 to 1. ``total``
    counts all steps, those before this loop included; default: ``start`` and as many as there are items, if that is
    known. ``start``: steps that were done before the first item; default: 0, or those before where a ``range`` begins,
    which may count from 0 or, as ``range(1, n + 1)``, from 1.

    ``resume``: leave out the items that were done before ``resume_step()``: they are taken and thrown away, but those
    of a range are not. ``stop``: the loop ends after the current item when the job tells this process to stop, see
    ``stopping``; ``stopped`` of what is returned is true then. It has ``step``, too, those that are done, and
    ``report(loss=…)``, which adds metrics to the next report.

    Wants ``tony_progress.py`` beside it.
    """
    made: tony_progress.Track[Item] = importlib.import_module("tony_progress").Track(
        items, total, start, resume=resume, stop=stop
    )
    return made


def stopping() -> bool:
    """Whether the job has told this process to stop: save what is worth it and end, SIGKILL comes after its grace.

    From the first call on SIGTERM does not end this process; the second SIGTERM does. A handler that the program has
    is called, too. Where ranks train in step each hears it at a time of its own, so end together or leave it. False
    outside a job, and where the first call is not in the main thread. Wants ``tony_progress.py`` beside it.
    """
    told: bool = importlib.import_module("tony_progress").stopping()
    return told


def keras_callback(*, checkpoints: bool = False, exports: bool = True, stop: bool = False) -> Any:
    """A callback for ``fit`` of Keras; see ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").keras_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def lightning_callback(*, checkpoints: bool = True, exports: bool = True, stop: bool = False) -> Any:
    """A callback for the ``Trainer`` of (PyTorch) Lightning; see ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").lightning_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def transformers_callback(*, checkpoints: bool = True, exports: bool = True, stop: bool = False) -> Any:
    """A callback for the ``Trainer`` of Hugging Face's transformers; see ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").transformers_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def _taken(variable: str) -> bool:
    """Whether there was a request in the file that a variable names; it is gone then."""
    path = os.environ.get(variable)
    if not path:
        return False
    try:
        Path(path).unlink()
    except OSError:
        return False
    return True


def _below(top: Path, path: Path) -> Path:
    found = path.parent.resolve() / path.name
    if top not in found.parents or path.name == "..":
        raise ValueError(f"commit_checkpoint: {path} does not lie below {top}")
    return found


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.exists():
        raise ValueError(f"commit_checkpoint: {path} is {'a link' if path.is_symlink() else 'missing'}")
    if path.is_dir():
        for child in path.iterdir():
            yield from _files(child)
    else:
        yield path


def _write_whole(path: Path, data: bytes) -> bool:
    """Readers see all of it or nothing."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        return False
    return True


def _number(variable: str) -> Optional[int]:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None


def _plain(value: Any) -> Optional[float]:
    try:
        return float(value)
    except Exception:  # noqa: BLE001 - a value of another library may raise anything
        return None

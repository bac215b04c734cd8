"""Optional helper for training code in a tony job. Put ``import tony_sdk`` into your script.

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

The loop ``for step in tony_sdk.track(range(total), resume=True)`` reports its own progress. The callbacks for Keras,
Lightning and transformers also report progress: ``keras_callback``, ``lightning_callback``, ``transformers_callback``.

The module needs only Python 3.8. Outside a job it has no effect and raises no errors, so the same script runs on a
laptop. The module is a thin layer over the TONY_* variables. Programs in any language can use these variables instead.
If you copy this file, also copy the other ``tony_*.py`` files of its directory: ``track``, ``stopping``, the inputs and
the callbacks need them.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union

if TYPE_CHECKING:
    from tony_provider.runtime.sdk import tony_inputs, tony_progress

    Read = Callable[[tony_inputs.TaskShard], Iterable[Any]]

Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskInfo:
    """The task type, index and ranks of this process in the job."""

    type: str  # chief, worker, ps, evaluator, …
    index: int  # index among the tasks of the same type, from 0
    rank: Optional[
        int
    ]  # rank among all processes of the cluster, chief first, then workers; None for evaluators and sidecars
    world_size: int  # number of processes with a rank
    local_rank: int = 0  # rank among the processes of the container, from 0
    local_world_size: int = 1  # number of processes in the container


def task() -> Optional[TaskInfo]:
    """Return the task type, the index and the ranks of this process. Return None outside a job."""
    index, world_size = _number("TONY_TASK_INDEX"), _number("TONY_WORLD_SIZE")
    task_type = os.environ.get("TONY_TASK_TYPE")
    if not task_type or index is None or world_size is None:
        return None
    local_rank, local_world_size = _number("TONY_LOCAL_RANK") or 0, _number("TONY_LOCAL_WORLD_SIZE") or 1
    return TaskInfo(task_type, index, _number("TONY_RANK"), world_size, local_rank, local_world_size)


def model_dir() -> Optional[str]:
    """Return the path of the local directory for the job's model. Return None outside a job.

    The directory of the chief becomes the job's model, or without a chief the directory of the first worker. Other
    directories are discarded.
    """
    return os.environ.get("TONY_MODEL_DIR") or None


def checkpoint_dir() -> Optional[str]:
    """Return the path of the directory for this training's checkpoints. Return None outside a job.

    After a restart, this directory contains the last stored snapshot."""
    return os.environ.get("TONY_CHECKPOINT_DIR") or None


def resume_from() -> Optional[str]:
    """Return the path from which a framework can resume: a file, a directory, or a TensorFlow checkpoint prefix.

    Return None outside a job, if the training begins at step 0, or if the checkpoint has an unknown format.
    """
    return os.environ.get("TONY_RESUME_FROM") or None


def resume_step() -> int:
    """Return the step of the checkpoint from which the training resumes, or 0 if the training does not resume."""
    return _number("TONY_RESUME_STEP") or 0


def tensorboard_dir() -> Optional[str]:
    """Return the path of the local directory for event files. Return None outside a job.

    The job copies the event files to the store.
    """
    return os.environ.get("TONY_TENSORBOARD_DIR") or None


def warm_start() -> Optional[str]:
    """Return the path of the local directory that contains the model for a warm start at step 0.

    Return None if the training has no such model.
    """
    return os.environ.get("TONY_WARM_START") or None


def checkpoint_requested() -> bool:
    """Return whether the job has requested a checkpoint. Return True only once for each request.

    The job requests checkpoints before preemptions, suspensions and resizes. Users can also request checkpoints. Call
    this function after each step.
    """
    return _taken("TONY_CHECKPOINT_REQUEST")


def commit_checkpoint(step: int, *paths: Union[str, os.PathLike[str]]) -> bool:
    """Declare that a checkpoint is complete. The job then immediately takes a snapshot of this checkpoint.

    ``paths`` are files and directories below ``checkpoint_dir()``. Relative paths are resolved against
    ``checkpoint_dir()``. After a restart, ``resume_from()`` returns the first path. Do not change the files after this
    call. You may remove the files when a newer checkpoint exists. Without this call, the job takes a snapshot when the
    directory has not changed for a few seconds.

    Return False outside a job, or if the disk is full. Raises ValueError if the
    step is negative, or if a path is missing, is a link, or is outside the directory.
    """
    directory = checkpoint_dir()
    if directory is None:
        return False
    number = int(step)
    if number < 0 or not paths:
        raise ValueError("commit_checkpoint needs a step of at least 0, and the paths of a checkpoint")
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
    """Return whether an export of the model has been requested. Return True only once for each request.

    Exports are requested by users, or regularly by the job. Only the chief or rank 0 receives requests. Call this
    function after each step.
    """
    return _taken("TONY_EXPORT_REQUEST")


@contextmanager
def export(step: int) -> Iterator[str]:
    """Provide an empty local directory for an export of the model during the training::

        if tony_sdk.export_requested():
            with tony_sdk.export(step) as directory:
                model.save(os.path.join(directory, "model.keras"))

    After the block, the directory is copied to the store in the background. The directory is discarded after an error
    in the block, outside a job, and in all processes except the chief or rank 0. If the program exports the same step
    several times, only the first export is stored.

    Raises ValueError if the step is negative, and OSError if the disk is full.
    """
    number = int(step)
    if number < 0:
        raise ValueError("export needs a step of at least 0")
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
    """Yield this task's shards of an input. See ``tony_inputs``.

    Outside a job, ``local`` is a file pattern or the paths of files to read, and ``format`` is the format of these
    files.
    """
    shards: Iterator[tony_inputs.TaskShard] = importlib.import_module("tony_inputs").inputs(name, local, format)
    return shards


def output(name: str, local: Union[str, os.PathLike[str], None] = None) -> str:
    """Return a local directory for the files that this task adds to an output.

    When the task succeeds, the files become part of the output. The directory is empty when the program starts. All
    processes of a container share the directory. Outside a job, the function returns ``local``, and creates this
    directory if it is missing. Raises ValueError if the job has no such output for this task type, or if ``local`` is
    missing outside a job.
    """
    directory = os.environ.get("TONY_OUTPUT_" + name.upper())
    if directory:
        return directory
    if os.environ.get("TONY_TASK_TYPE"):
        raise ValueError(f"the job has no output {name!r} for this task type")
    if local is None:
        raise ValueError(f"output {name!r}: this process is not a task of a job; set local=… to a directory")
    Path(local).mkdir(parents=True, exist_ok=True)
    return os.fspath(local)


def batches(name: str, size: int, read: Optional[Read] = None, **outside: Any) -> Iterator[list[Any]]:
    """Yield lists of ``size`` examples from an input. The last list of a shard may be shorter. See ``tony_inputs``.

    ``read`` is a function that takes a shard and yields examples. The default function yields the shard's records.
    ``outside`` may contain ``local`` and ``format``, as in ``inputs``. With ``deal: queue``, a shard is committed when
    the loop requests the first batch after this shard.
    """
    made: Iterator[list[Any]] = importlib.import_module("tony_inputs").batches(name, size, read, **outside)
    return made


def tf_dataset(name: str, read: Optional[Read] = None, signature: Any = None, **outside: Any) -> Any:
    """Return a ``tf.data.Dataset`` with the examples in this task's shards of an input. See ``tony_inputs``.

    ``signature`` is the ``output_signature`` for ``from_generator``. The default signature is for bytes. ``read`` and
    ``outside`` have the same meaning as in ``batches``. Raises InputError for an input with ``deal: queue``.
    """
    return importlib.import_module("tony_inputs").tf_dataset(name, read, signature, **outside)


def torch_dataset(name: str, read: Optional[Read] = None, **outside: Any) -> Any:
    """Return a PyTorch ``IterableDataset`` with the examples in this task's shards of an input. See ``tony_inputs``.

    The processes of a ``DataLoader`` divide the shards among themselves. ``read`` and ``outside`` have the same meaning
    as in ``batches``. Raises InputError for an input with ``deal: queue``.
    """
    return importlib.import_module("tony_inputs").torch_dataset(name, read, **outside)


def report(step: Optional[int] = None, total_steps: Optional[int] = None, **metrics: Any) -> bool:
    """Report the progress of this task to the job. A new report replaces the previous report.

    ``metrics`` are numbers, or arrays with a single number. Other values are ignored. By default, ``step`` and
    ``total_steps`` come from the current ``track`` loop. Without such a loop, the call reports only metrics.

    One call per second is enough. Return False outside a job, or if the disk is full.
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
        _append(path, line)
    except Exception:  # noqa: BLE001 - values may raise any error, but a failed report must not end the training
        return False
    return True


def log_params(params: Any = None, **more: Any) -> bool:
    """Report hyper-parameters to the job: ``log_params({"lr": 0.1}, epochs=3)`` or ``log_params(args)``.

    ``params`` is a mapping or an ``argparse`` namespace. Names in nested mappings are joined by dots: ``optimizer.lr``.
    Values are texts, integers, floats, booleans, or arrays with one value. None, lists, paths and enumerations become
    texts. The limits are 100 names of 100 characters, and values of 250 characters. The call prints a warning about
    other parameters. Later calls add names or replace values.

    Any rank may call this function. The job shows the values of the chief or rank 0, otherwise those of another task.
    The job masks secrets, and values of names such as ``api_key``. Parameters that are only in MLflow or TensorBoard
    are not read. Return False outside a job, or if no parameters were written.
    """
    path = os.environ.get("TONY_METRICS_FILE")
    if not path:
        return False
    found: dict[str, Any] = {}
    rejected: list[str] = []
    try:
        given = params if params is None or hasattr(params, "items") else vars(params)
        for name, value in _flat("", {**(given or {}), **more}):
            plain = _parameter(value)
            if plain is None or len(found) == 100 or len(name) > 100 or len(str(plain)) > 250:
                rejected.append(name[:100])
            else:
                found[name] = plain
        if found:
            _append(path, {"parameters": found})
    except Exception as error:  # noqa: BLE001 - as in ``report``
        rejected, found = [repr(error)[:250]], {}
    if rejected:
        with suppress(Exception):
            sys.stderr.write(f"tony_sdk.log_params leaves out: {', '.join(rejected[:10])}\n")
    return bool(found)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings, with their names joined by dots."""
    if not hasattr(value, "items"):
        yield prefix, value
        return
    for name, each in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), each)


def _parameter(value: Any) -> Union[str, int, float, None]:
    """Return a value as JSON can represent it, or None if it is not a parameter."""
    if isinstance(value, (int, float)):
        return value
    if value is None or isinstance(value, (Sequence, os.PathLike, Enum)):
        return str(value)
    try:
        return _parameter(value.item())  # of a scalar of numpy, PyTorch or TensorFlow
    except Exception:  # noqa: BLE001 - values of other libraries may raise any error
        return None


def _append(path: str, line: dict[str, Any]) -> None:
    """Append a line to the metrics file. Raises OSError, and errors of values that JSON cannot represent."""
    data = (json.dumps(line) + "\n").encode()
    # One write in append mode keeps the lines of several threads or processes separate. A lock is no alternative:
    # if the process forks while another thread holds the lock, the child waits forever.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _of_loop(total_steps: Optional[int]) -> tuple[Optional[int], Optional[int]]:
    """Return the running loop's step, and ``total_steps`` or by default the loop's total. No step if no loop runs."""
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
    """Return a loop that yields the items and reports progress to the job: ``for batch in tony_sdk.track(loader)``.

    Each item is a step. A step is done when the loop requests the next item. About once a second, the loop reports the
    step, ``total``, and the metric ``input_wait``. This metric is the share of time (from 0 to 1) that the loop waits
    for items.

    ``total`` is the number of all steps, including steps before this loop. The default of ``total`` is ``start`` plus
    the number of items, if this number is known. ``start`` is the number of steps that were done before the first item.
    The default of ``start`` is 0. For a ``range``, the default is the number of steps before its first number. A range
    may count from 0, or from 1 as in ``range(1, n + 1)``.

    ``resume=True`` skips the items before ``resume_step()``. Skipped items are still consumed, unless ``items`` is a
    range. ``stop=True`` ends the loop after the current item if the job asks this process to stop (see ``stopping``).
    The returned loop has the attributes ``stopped`` and ``step`` (the number of completed steps). Its method
    ``report(loss=…)`` adds metrics to the next report.
    """
    made: tony_progress.Track[Item] = importlib.import_module("tony_progress").Track(
        items, total, start, resume=resume, stop=stop
    )
    return made


def stopping() -> bool:
    """Return whether the job has asked this process to stop.

    The program should then save its work and exit. SIGKILL follows after the grace period. Once the program has called
    this function, the first SIGTERM no longer ends the process, but a second SIGTERM does. An existing signal handler
    of the program is still called.

    Ranks receive the signal at different times. If the ranks train synchronously, they must exit together or ignore the
    signal. Return False outside a job, or if the first call is not in the main thread.
    """
    requested: bool = importlib.import_module("tony_progress").stopping()
    return requested


def keras_callback(*, checkpoints: bool = False, exports: bool = True, stop: bool = False) -> Any:
    """Return a callback for the method ``fit`` of a Keras model. See ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").keras_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def lightning_callback(*, checkpoints: bool = True, exports: bool = True, stop: bool = False) -> Any:
    """Return a callback for the ``Trainer`` of (PyTorch) Lightning. See ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").lightning_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def transformers_callback(*, checkpoints: bool = True, exports: bool = True, stop: bool = False) -> Any:
    """Return a callback for the ``Trainer`` of Hugging Face's transformers. See ``tony_callbacks``."""
    made = importlib.import_module("tony_callbacks").transformers_callback
    return made(checkpoints=checkpoints, exports=exports, stop=stop)


def _taken(variable: str) -> bool:
    """Remove the request file that an environment variable names. Return whether the file existed."""
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
        raise ValueError(f"commit_checkpoint: {path} is not below {top}")
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
    """Write a file atomically. Return False if the write failed."""
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
        return float(getattr(value, "item", lambda: value)())  # float() of a tensor with gradients prints a warning
    except Exception:  # noqa: BLE001 - values of other libraries may raise any error
        return None

"""Callbacks for Keras, Lightning and transformers: report progress, and answer requests of the job.

The job can request checkpoints, exports and a stop. Ranks that train in step first agree on the requests.
"""

from __future__ import annotations

import importlib
import math
import numbers
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

AGREE_EVERY = 10  # batches after which ranks that train in step agree on their requests
_KEPT = 2  # number of checkpoints: the newest, and the previous one, which may still be uploading


@dataclass(frozen=True)
class Asked:
    """The requests that the job has made to this process, or to any rank."""

    checkpoint: bool = False
    export: bool = False
    stop: bool = False


class Requests:
    """Takes the requests that a callback answers. All other requests are left for the program."""

    def __init__(self, *, checkpoints: bool, exports: bool, stop: bool) -> None:
        self.checkpoints = checkpoints
        self._exports = exports
        self._stop = stop
        self._sdk = importlib.import_module("tony_sdk")

    def listen(self) -> None:
        """Start to listen for stop requests, if this callback answers them."""
        if self._stop:
            self._sdk.stopping()

    def take(self) -> Asked:
        """Return the current requests. A stop request is returned each time, any other request only once."""
        return Asked(
            self.checkpoints and self._sdk.checkpoint_requested(),
            self._exports and self._sdk.export_requested(),
            self._stop and self._sdk.stopping(),
        )


class SavedFiles:
    """Single-file checkpoints in the checkpoint directory, written atomically. Older checkpoints are removed."""

    def __init__(self, pattern: str) -> None:
        """``pattern``: name of the files, with ``{step}`` in place of the step."""
        self._pattern = pattern
        self._saved: list[Path] = []
        self._sdk = importlib.import_module("tony_sdk")

    @contextmanager
    def one(self, step: int, *, keep: bool) -> Iterator[str]:
        """Provide a path for the checkpoint of a step. Without ``keep``, or outside a job, the file is discarded."""
        directory = self._sdk.checkpoint_dir()
        name = self._pattern.format(step=step)
        aside = tempfile.mkdtemp(prefix="checkpoint-")
        try:
            path = Path(aside, name)
            yield str(path)
            if keep and directory is not None and path.exists():
                self._put(path, Path(directory, name))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _put(self, path: Path, target: Path) -> None:
        partly = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        shutil.move(str(path), str(partly))  # copies the file if the target is on another file system
        partly.replace(target)
        self._saved = [*(each for each in self._saved if each != target), target]
        while len(self._saved) > _KEPT:
            self._saved.pop(0).unlink(missing_ok=True)


def keras_callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """Return a new callback for ``fit``. The calls of ``fit`` with this callback must not overlap."""
    base: Any = importlib.import_module(_keras_in_use()).callbacks.Callback

    class TonyCallback(base):  # type: ignore[misc]
        """Reports the progress of ``fit`` and answers the job's requests."""

        _supports_tf_logs = True  # without this flag, Keras 2 converts all logs to numbers in each batch

        def __init__(self) -> None:
            super().__init__()
            self.on_train_begin()

        def on_train_begin(self, logs: Any = None) -> None:
            self._fit = _Fit(self, checkpoints=checkpoints, exports=exports, stop=stop)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._fit.begin_epoch(epoch)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._fit.end_batch(batch, logs or {})

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._fit.end_epoch(logs or {})

        def on_train_end(self, logs: Any = None) -> None:
            self._fit.end()

    return TonyCallback()


class _Fit:
    """State of one call of ``fit``."""

    def __init__(self, owner: Any, *, checkpoints: bool, exports: bool, stop: bool) -> None:
        self._owner = owner
        self._sdk: Any = importlib.import_module("tony_sdk")
        self._progress: Any = importlib.import_module("tony_progress").LoopProgress()
        self._requests: Any = Requests(checkpoints=checkpoints, exports=exports, stop=stop)
        self._files: Any = SavedFiles("step-{step}.keras")
        self._together: Optional[Any] = None  # strategy whose workers act together
        self._first: Optional[int] = None  # steps done before this call of ``fit``
        self._first_epoch = 0
        self._epoch = 0
        self._epoch_began = 0  # steps done before this epoch
        self._steps: Optional[int] = None  # steps in an epoch
        self._step = 0
        self._batches = 0  # batches that Keras has reported as ended
        self._saved_at: Optional[int] = None

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch. The first call initializes, because Keras may restore the model after training has begun."""
        if self._first is None:
            self._first = self._step = _iterations(self._owner.model)
            self._first_epoch = epoch
            self._together = _workers_in_step(self._owner.model)
            self._requests.listen()
        self._epoch, self._epoch_began = epoch, self._step
        self._take_steps(self._owner.params.get("steps"))

    def end_batch(self, batch: int, logs: dict[str, Any]) -> None:
        self._step = self._epoch_began + batch + 1
        self._batches += 1
        self._progress.at(self._step, **logs, epoch=self._epoch + 1)
        if self._together is None or self._batches % AGREE_EVERY == 0:
            self._obey(self._agreed(self._requests.take()))

    def end_epoch(self, logs: dict[str, Any]) -> None:
        if not self._owner.model.stop_training:
            self._take_steps(self._step - self._epoch_began)
        self._progress.at(self._step, **logs, epoch=self._epoch + 1)
        self._progress.say()
        if self._requests.checkpoints:
            self._save()

    def end(self) -> None:
        self._progress.say()

    def _take_steps(self, steps: Optional[int]) -> None:
        """Compute the total from the steps of an epoch. Keras may know these steps only after the first epoch."""
        if steps:
            epochs = self._owner.params.get("epochs") or 1
            self._progress.total_steps = (self._first or 0) + (epochs - self._first_epoch) * steps

    def _agreed(self, asked: Asked) -> Asked:
        """Return the requests that any of the workers that train in step has received."""
        if self._together is None:
            return asked
        tf = importlib.import_module("tensorflow")
        flags = [float(asked.checkpoint), float(asked.export), float(asked.stop)]
        values = self._together.run(lambda: tf.constant(flags))
        sums = self._together.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)
        return Asked(*(float(each) > 0 for each in sums))

    def _obey(self, asked: Asked) -> None:
        if asked.checkpoint or (asked.stop and self._requests.checkpoints):
            self._save()
        if asked.export:
            with self._sdk.export(self._step) as directory:
                self._owner.model.save(Path(directory, "model.keras"))
        if asked.stop:
            self._owner.model.stop_training = True

    def _save(self) -> None:
        if self._saved_at == self._step:
            return
        self._saved_at = self._step
        task = self._sdk.task()
        leads = task is not None and task.rank == 0
        if leads or self._together is not None:
            with self._files.one(self._step, keep=leads) as path:
                self._owner.model.save(path)


def _keras_in_use() -> str:
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    if legacy or ("tf_keras" in sys.modules and "keras" not in sys.modules):
        return "tf_keras"
    return "keras"


def _iterations(model: Any) -> int:
    """Return the optimizer's steps in all calls of ``fit``, including calls before the model was restored."""
    optimizer = getattr(model, "optimizer", None)
    done = getattr(optimizer, "iterations", None)
    if done is None:
        return 0
    if hasattr(done, "numpy"):  # a TensorFlow variable; with a strategy, it is not a plain number
        done = done.numpy()
    return int(done) * (getattr(optimizer, "gradient_accumulation_steps", None) or 1)


def _workers_in_step(model: Any) -> Optional[Any]:
    """Return the strategy of workers that train the model in step, or None. These workers must act together."""
    strategy = getattr(model, "distribute_strategy", None)
    tf = sys.modules.get("tensorflow")
    if strategy is None or tf is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    return strategy


_DIRECTORY = "/tony-work/checkpoints"  # part of the real path of the checkpoint directory in each container
_NAMES = ("lightning.pytorch", "pytorch_lightning")


def lightning_callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """Return a new callback for one Lightning trainer."""
    base: Any = _lightning_in_use().Callback
    sdk: Any = importlib.import_module("tony_sdk")
    new_progress: Any = importlib.import_module("tony_progress").LoopProgress

    class TonyCallback(base):  # type: ignore[misc]
        """Reports the progress of a Lightning trainer and answers the job's requests."""

        def __init__(self) -> None:
            super().__init__()
            self._requests: Any = Requests(checkpoints=checkpoints, exports=exports, stop=stop)
            self._files: Any = SavedFiles("step={step}.ckpt")
            self._progress: Any = new_progress()
            self._batches = 0

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self._progress = new_progress(_total_steps(trainer))
            self._progress.waiting()
            self._requests.listen()

        def on_train_batch_start(self, *_: Any) -> None:
            self._progress.working()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            self._batches += 1
            if self._progress.due:  # reading metrics takes time
                self._progress.note(**trainer.callback_metrics, epoch=trainer.current_epoch + 1)
            self._progress.at(trainer.global_step)
            if trainer.world_size == 1 or self._batches % AGREE_EVERY == 0:
                self._obey(trainer)
            self._progress.waiting()

        def on_validation_start(self, *_: Any) -> None:
            self._progress.working()

        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                self._progress.note(**trainer.callback_metrics)
            self._progress.waiting()

        def on_train_end(self, trainer: Any, *_: Any) -> None:
            self._progress.working()
            self._progress.at(trainer.global_step, **trainer.callback_metrics)
            self._progress.say()

        def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            for each in trainer.checkpoint_callbacks:
                state = checkpoint["callbacks"].get(each.state_key)
                former = str(state.get("dirpath") or "") if isinstance(state, dict) else ""
                own = str(getattr(each, "dirpath", None) or "")
                if _DIRECTORY in former and former.rpartition(_DIRECTORY)[2] == own.rpartition(_DIRECTORY)[2]:
                    checkpoint["callbacks"][each.state_key] = _moved(state, former, own)

        def _obey(self, trainer: Any) -> None:
            asked = self._requests.take()
            stopping = _any_rank(trainer, flag=asked.stop)
            if _any_rank(trainer, flag=asked.checkpoint or (stopping and checkpoints)):
                with self._files.one(trainer.global_step, keep=trainer.is_global_zero) as path:
                    trainer.save_checkpoint(path)
            if _any_rank(trainer, flag=asked.export):
                with sdk.export(trainer.global_step) as directory:
                    trainer.save_checkpoint(Path(directory, "model.ckpt"), weights_only=True)
            if stopping:
                trainer.should_stop = True

    return TonyCallback()


def _moved(state: Any, former: str, own: str) -> Any:
    """Return a callback's state in which all paths contain ``own`` instead of the directory ``former``."""
    if isinstance(state, str):
        return own + state[len(former) :] if state == former or state.startswith(former + "/") else state
    if isinstance(state, dict):
        return {_moved(key, former, own): _moved(value, former, own) for key, value in state.items()}
    return state


def _lightning_in_use() -> Any:
    for name in _NAMES:
        if name in sys.modules:
            return sys.modules[name]
    try:
        return importlib.import_module(_NAMES[0])
    except ModuleNotFoundError:
        return importlib.import_module(_NAMES[1])


def _total_steps(trainer: Any) -> Optional[int]:
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < math.inf else None


def _any_rank(trainer: Any, *, flag: bool) -> bool:
    """Return whether the flag is set in any rank. All ranks must call this function."""
    if trainer.world_size == 1:
        return flag
    # Lightning before 1.9 can only check whether a flag is set in all ranks.
    return not trainer.strategy.reduce_boolean_decision(not flag)


def transformers_callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """Return a new callback for one transformers trainer."""
    base: Any = importlib.import_module("transformers").TrainerCallback
    sdk: Any = importlib.import_module("tony_sdk")
    new_progress: Any = importlib.import_module("tony_progress").LoopProgress

    class TonyCallback(base):  # type: ignore[misc]
        """Reports the progress of a transformers trainer and answers the job's requests."""

        def __init__(self) -> None:
            self._requests: Any = Requests(checkpoints=checkpoints, exports=exports, stop=stop)
            self._progress: Any = new_progress()

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress = new_progress(state.max_steps if state.max_steps > 0 else None)
            self._progress.waiting()
            self._requests.listen()

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress.working()

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self._progress.at(state.global_step, epoch=state.epoch)
            ranks = _ranks()
            if ranks == 1 or state.global_step % AGREE_EVERY == 0:
                asked = self._requests.take()
                if ranks > 1:
                    asked = _agreed(asked, args.device)
                self._obey(asked, args, state, control, model)
            self._progress.waiting()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            self._progress.note(**_numbers(logs))
            self._progress.worked()

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress.worked()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress.worked()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress.say()

        def _obey(self, asked: Asked, args: Any, state: Any, control: Any, model: Any) -> None:
            if asked.checkpoint or (asked.stop and checkpoints):
                control.should_save = True
            if asked.export and state.is_world_process_zero and not (args.fsdp or args.deepspeed):
                with sdk.export(state.global_step) as directory:
                    model.save_pretrained(directory)
            if asked.stop:
                control.should_training_stop = True

    return TonyCallback()


def _numbers(logs: Any) -> dict[str, Any]:
    return {name: value for name, value in (logs or {}).items() if isinstance(value, numbers.Real)}


def _ranks() -> int:
    distributed: Any = importlib.import_module("torch.distributed")
    together = distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if together else 1


def _agreed(asked: Asked, device: Any) -> Asked:
    """Return the requests that any rank has received. All ranks must call this function."""
    torch: Any = importlib.import_module("torch")
    flags = torch.tensor([asked.checkpoint, asked.export, asked.stop], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(flags, op=torch.distributed.ReduceOp.MAX)
    return Asked(*(bool(flag) for flag in flags.tolist()))

"""A callback for ``fit`` of Keras 2 and 3 in a tony job; reached by ``tony_sdk.keras_callback``.

    model.fit(data, epochs=5, callbacks=[tony_sdk.keras_callback()])

It reports steps, epochs, total steps and metrics. With ``checkpoints`` the whole model is saved as ``step-120.keras``
in the checkpoint directory when the job asks, at each epoch's end, and before it stops; load it with
``keras.models.load_model(tony_sdk.resume_from())``. With ``exports`` it is exported as ``model.keras`` when somebody
asks. With ``stop`` training ends after the batch in which the job tells the process to stop.

Under MultiWorkerMirroredStrategy all workers do each of these after the same batch, some batches after they were asked,
and what the leader saves counts. Of Keras it imports the one that the program uses.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Optional


def callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """A new callback, for one call of ``fit`` at a time."""
    base: Any = importlib.import_module(_keras_in_use()).callbacks.Callback

    class TonyCallback(base):  # type: ignore[misc]
        """Tells the job how far ``fit`` is, and does what the job asks of it."""

        _supports_tf_logs = True  # of Keras 2: else it has numbers made of all logs in each batch

        def __init__(self) -> None:
            super().__init__()
            self._fit = _Fit(self, checkpoints=checkpoints, exports=exports, stop=stop)

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
    """One call of ``fit``."""

    def __init__(self, owner: Any, *, checkpoints: bool, exports: bool, stop: bool) -> None:
        saves: Any = importlib.import_module("tony_saves")
        self._owner = owner
        self._sdk: Any = importlib.import_module("tony_sdk")
        self._progress: Any = importlib.import_module("tony_progress").LoopProgress()
        self._agree_every: int = saves.AGREE_EVERY
        self._asked_kind: Any = saves.Asked
        self._requests: Any = saves.Requests(checkpoints=checkpoints, exports=exports, stop=stop)
        self._files: Any = saves.SavedFiles("step-{step}.keras")
        self._together: Optional[Any] = None  # the strategy whose workers act together
        self._first: Optional[int] = None  # steps before this call
        self._first_epoch = 0
        self._epoch = 0
        self._epoch_began = 0  # steps
        self._steps: Optional[int] = None  # in an epoch
        self._step = 0
        self._batches = 0  # ends of batches that were told
        self._saved_at: Optional[int] = None

    def begin_epoch(self, epoch: int) -> None:
        """Not at the beginning of training: then what restores the model may not have done so yet."""
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
        if self._together is None or self._batches % self._agree_every == 0:
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
        """An epoch has so many steps; mostly told at once, and else after the first epoch."""
        if steps:
            epochs = self._owner.params.get("epochs") or 1
            self._progress.total_steps = (self._first or 0) + (epochs - self._first_epoch) * steps

    def _agreed(self, asked: Any) -> Any:
        """What any of the workers that train in step is asked for."""
        if self._together is None:
            return asked
        tf = importlib.import_module("tensorflow")
        flags = [float(asked.checkpoint), float(asked.export), float(asked.stop)]
        values = self._together.run(lambda: tf.constant(flags))
        sums = self._together.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)
        return self._asked_kind(*(float(each) > 0 for each in sums))

    def _obey(self, asked: Any) -> None:
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
    """Steps that the optimizer has done, in all calls of ``fit``, and in those that the model was restored from."""
    optimizer = getattr(model, "optimizer", None)
    done = getattr(optimizer, "iterations", None)
    if done is None:
        return 0
    if hasattr(done, "numpy"):  # of TensorFlow; under a strategy it is no number by itself
        done = done.numpy()
    return int(done) * (getattr(optimizer, "gradient_accumulation_steps", None) or 1)


def _workers_in_step(model: Any) -> Optional[Any]:
    """The strategy of a model that several workers train in step: what one of them does alone, the others wait in."""
    strategy = getattr(model, "distribute_strategy", None)
    tf = sys.modules.get("tensorflow")
    if strategy is None or tf is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    return strategy

"""A callback for the ``Trainer`` of Lightning in a tony job; reached by ``tony_sdk.lightning_callback``.

    trainer = Trainer(max_epochs=5, callbacks=[tony_sdk.lightning_callback()])
    trainer.fit(model, data, ckpt_path=tony_sdk.resume_from())

It reports steps (``global_step``), epochs, total steps, metrics that the module logs, and the share of time that was
waited for batches. With ``checkpoints`` one is saved as ``step=120.ckpt`` in the checkpoint directory when the job
asks, and before it stops; those at regular times are for ``ModelCheckpoint``. With ``exports`` the weights are exported
as ``model.ckpt`` when somebody asks. With ``stop`` training ends after the batch in which the job tells the process
to stop.

``ModelCheckpoint`` stores the real path of its directory, which differs in each container. When a checkpoint is loaded,
the callback replaces the former container's path, so that ``best_model_path`` and ``save_top_k`` keep their meaning.

All ranks do each of these after the same batch, some batches after one of them was asked. Of ``lightning.pytorch`` and
``pytorch_lightning`` it imports the one that the program uses.
"""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any, Optional

_DIRECTORY = "/tony-work/checkpoints"  # in the real path of the checkpoint directory in each container
_NAMES = ("lightning.pytorch", "pytorch_lightning")


def callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """A new callback, for one trainer."""
    base: Any = _lightning_in_use().Callback
    saves: Any = importlib.import_module("tony_saves")
    sdk: Any = importlib.import_module("tony_sdk")
    new_progress: Any = importlib.import_module("tony_progress").LoopProgress

    class TonyCallback(base):  # type: ignore[misc]
        """Tells the job how far the trainer is, and does what the job asks of it."""

        def __init__(self) -> None:
            super().__init__()
            self._requests: Any = saves.Requests(checkpoints=checkpoints, exports=exports, stop=stop)
            self._files: Any = saves.SavedFiles("step={step}.ckpt")
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
            if self._progress.due:  # metrics cost time
                self._progress.note(**trainer.callback_metrics, epoch=trainer.current_epoch + 1)
            self._progress.at(trainer.global_step)
            if trainer.world_size == 1 or self._batches % saves.AGREE_EVERY == 0:
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
    """Return a callback's state with ``own`` in place of the directory ``former`` in all paths."""
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
    """Whether it is so for any of the ranks, which all ask this."""
    if trainer.world_size == 1:
        return flag
    # Releases before 1.9 know "all" only.
    return not trainer.strategy.reduce_boolean_decision(not flag)

"""A callback for the ``Trainer`` of transformers in a tony job; reached by ``tony_sdk.transformers_callback``.

    arguments = TrainingArguments(output_dir=tony_sdk.checkpoint_dir() or "out")
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[tony_sdk.transformers_callback()])
    trainer.train(resume_from_checkpoint=tony_sdk.resume_from())

It reports steps (``global_step``), epochs, total steps, what the trainer logs, and the share of time that was waited
for batches. With ``checkpoints`` the trainer saves one into its ``output_dir`` when the job asks, and before it stops.
With ``exports`` the model is exported by ``save_pretrained`` when somebody asks, unless it is divided among ranks.
With ``stop`` training ends after the step in which the job tells the process to stop.

All ranks do each of these after the same step, some steps after one of them was asked.
"""

from __future__ import annotations

import importlib
import numbers
from typing import Any


def callback(*, checkpoints: bool, exports: bool, stop: bool) -> Any:
    """A new callback, for one trainer."""
    base: Any = importlib.import_module("transformers").TrainerCallback
    saves: Any = importlib.import_module("tony_saves")
    sdk: Any = importlib.import_module("tony_sdk")
    new_progress: Any = importlib.import_module("tony_progress").LoopProgress

    class TonyCallback(base):  # type: ignore[misc]
        """Tells the job how far the trainer is, and does what the job asks of it."""

        def __init__(self) -> None:
            self._requests: Any = saves.Requests(checkpoints=checkpoints, exports=exports, stop=stop)
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
            if ranks == 1 or state.global_step % saves.AGREE_EVERY == 0:
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

        def _obey(self, asked: Any, args: Any, state: Any, control: Any, model: Any) -> None:
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


def _agreed(asked: Any, device: Any) -> Any:
    """What any of the ranks is asked for; all of them ask this."""
    torch: Any = importlib.import_module("torch")
    flags = torch.tensor([asked.checkpoint, asked.export, asked.stop], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(flags, op=torch.distributed.ReduceOp.MAX)
    return type(asked)(*(bool(flag) for flag in flags.tolist()))

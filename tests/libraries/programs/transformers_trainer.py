"""transformers' Trainer: rotation, the best model at the end, and ``save_model()`` into the same directory.

Argument: how the newest checkpoint is found, ``last`` (get_last_checkpoint) or ``sdk`` (tony_sdk.resume_from).
"""

from __future__ import annotations

import os
import sys

import moments
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

moments.pause_in_torch_files()


class Moments(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        moments.began(state.global_step)

    def on_step_end(self, args, state, control, **_):
        moments.saving(state.global_step)

    def on_save(self, args, state, control, **_):
        moments.saved(state.global_step)


class Sums(torch.utils.data.Dataset):
    """Sequences, and whether their first two tokens are alike."""

    def __init__(self, size: int) -> None:
        self.tokens = torch.randint(0, 8, (size, 6), generator=torch.Generator().manual_seed(size))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": int((tokens[0] - tokens[1]).abs() < 3)}


torch.manual_seed(5)
config = BertConfig(
    vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
)
arguments = TrainingArguments(
    output_dir=str(moments.CHECKPOINTS),
    use_cpu=True,
    ddp_backend="gloo" if "RANK" in os.environ else None,
    per_device_train_batch_size=4,
    max_steps=12,
    learning_rate=0.01,
    save_strategy="steps",
    save_steps=2,
    save_total_limit=2,
    eval_strategy="steps",
    eval_steps=2,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    report_to=[],
    disable_tqdm=True,
)
model = BertForSequenceClassification(config)
trainer = Trainer(model, arguments, train_dataset=Sums(64), eval_dataset=Sums(32), callbacks=[Moments()])
if sys.argv[1] == "sdk":
    import tony_sdk

    newest = tony_sdk.resume_from()
else:
    newest = get_last_checkpoint(str(moments.CHECKPOINTS))
trainer.train(resume_from_checkpoint=newest)
trainer.save_model()
moments.saved(12, "model")
if trainer.is_world_process_zero():
    moments.finished(model.state_dict())

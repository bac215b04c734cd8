"""A small BERT trained by transformers, disturbed by what is asked of rank 0; one argument: the step to stop at."""

import os
import signal
import sys
from pathlib import Path

import debian_torch  # noqa: F401 - first
import tony_sdk
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Mischief(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if os.environ["TONY_RANK"] == "0" and state.global_step == 12:
            Path(os.environ["TONY_CHECKPOINT_REQUEST"]).touch()
            Path(os.environ["TONY_EXPORT_REQUEST"]).touch()
        if os.environ["TONY_RANK"] == "0" and state.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
)
data = [{"input_ids": [i % 50] * 5, "labels": i % 2} for i in range(160)]
args = TrainingArguments(
    output_dir=tony_sdk.checkpoint_dir(),
    no_cuda=True,
    per_device_train_batch_size=2,
    num_train_epochs=1,
    logging_steps=5,
    evaluation_strategy="steps",
    eval_steps=20,
    save_steps=1000,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model,
    args,
    train_dataset=data,
    eval_dataset=data[:20],
    callbacks=[Mischief(), tony_sdk.transformers_callback(stop=True)],
)
trainer.train(resume_from_checkpoint=tony_sdk.resume_from())
print(trainer.state.global_step, tony_sdk.stopping())

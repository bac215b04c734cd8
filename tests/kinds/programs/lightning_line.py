"""A line fitted by Lightning, disturbed by what is asked of rank 0; takes one argument: the step to stop at."""

import os
import signal
import sys
from pathlib import Path

import debian_torch  # noqa: F401 - first
import pytorch_lightning as pl
import tony_sdk
import torch


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, i):
        x, y = batch
        loss = ((self.layer(x)[:, 0] - y) ** 2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        self.log("val_loss", ((self.layer(x)[:, 0] - y) ** 2).mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Mischief(pl.Callback):
    def on_train_batch_end(self, trainer, *_):
        if os.environ["TONY_RANK"] == "0" and trainer.global_step == 12:
            Path(os.environ["TONY_CHECKPOINT_REQUEST"]).touch()
            Path(os.environ["TONY_EXPORT_REQUEST"]).touch()
        if os.environ["TONY_RANK"] == "0" and trainer.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)


x = torch.rand(320, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=4)
val = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=80)
world = int(os.environ["TONY_WORLD_SIZE"])
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    devices=1,
    num_nodes=world,
    strategy="ddp" if world > 1 else None,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[Mischief(), tony_sdk.lightning_callback(stop=True)],
)
trainer.fit(Net(), data, val, ckpt_path=tony_sdk.resume_from())
print(trainer.global_step, tony_sdk.stopping())

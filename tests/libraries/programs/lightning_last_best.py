"""Lightning's ModelCheckpoint with ``save_last`` and the best one: fit from ``last``, then test the best."""

from __future__ import annotations

import lightning
import moments
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

moments.pause_in_torch_files()


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch):
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch):
        self.log("val_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def test_step(self, batch):
        self.log("test_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.005)  # so slowly that each epoch is the best so far


class Moments(lightning.Callback):
    def on_train_start(self, trainer, module) -> None:
        moments.began(trainer.current_epoch)

    def on_validation_end(self, trainer, module) -> None:
        moments.saving(trainer.current_epoch + 1)


class Checkpoint(ModelCheckpoint):
    def on_train_epoch_end(self, trainer, module) -> None:
        super().on_train_epoch_end(trainer, module)
        moments.saved(trainer.current_epoch + 1)


lightning.seed_everything(6)
x = torch.randn(64, 5)
data = TensorDataset(x, x.sum(dim=1, keepdim=True) ** 2)
checkpoint = Checkpoint(
    dirpath=moments.CHECKPOINTS, filename="best-{epoch}", monitor="val_loss", save_top_k=1, save_last=True
)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    strategy="ddp",
    max_epochs=12,
    callbacks=[Moments(), checkpoint],
    logger=False,
    enable_progress_bar=False,
    num_sanity_val_steps=0,
)
model = Model()
trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8), ckpt_path="last")
last = {f"last.{name}": value.clone() for name, value in model.state_dict().items()}
(tested,) = trainer.test(model, DataLoader(data, batch_size=8), ckpt_path="best", verbose=False)
if trainer.is_global_zero:
    moments.finished({**last, **model.state_dict(), "tested": [tested["test_loss"]]})

"""Trains by Lightning up to an epoch, whose number is its only argument; the first epoch is the best.

Prints the best checkpoint, the checkpoints that are kept, and the epoch that was loaded.
"""

import os
import sys
from pathlib import Path

if os.environ.get("DEBIAN_TORCH"):
    import debian_torch  # noqa: F401 - first
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
import tony_sdk
import torch


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def on_train_start(self):
        self.begun = self.current_epoch

    def training_step(self, batch, i):
        return self.layer(batch[0]).mean()

    def validation_step(self, batch, i):
        self.log("val_loss", float(self.current_epoch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


directory = Path(tony_sdk.checkpoint_dir())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(16, 4)), batch_size=4)
best = pl.callbacks.ModelCheckpoint(directory, monitor="val_loss", save_top_k=1, save_last=True)
trainer = pl.Trainer(
    max_epochs=int(sys.argv[1]),
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[best, tony_sdk.lightning_callback()],
)
last = directory / "last.ckpt"
net = Net()
trainer.fit(net, data, data, ckpt_path=str(last) if last.exists() else None)
assert Path(best.best_model_path).is_file(), best.best_model_path
print(Path(best.best_model_path).name, sorted(path.name for path in directory.iterdir()), net.begun)

"""PyTorch's tutorial "Fault-tolerant Distributed Training with torchrun": rank 0 overwrites ``snapshot.pt``."""

from __future__ import annotations

import moments
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, EVERY = 12, 2
moments.pause_in_torch_files()


class Trainer:
    def __init__(self, model: nn.Module, data: DataLoader, optimizer: torch.optim.Optimizer) -> None:
        self.path = moments.CHECKPOINTS / "snapshot.pt"
        self.model, self.data, self.optimizer, self.epochs_run = model, data, optimizer, 0
        if self.path.exists():
            snapshot = torch.load(self.path)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.optimizer.load_state_dict(snapshot["OPTIMIZER"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
        self.ddp = DistributedDataParallel(self.model)

    def train(self) -> None:
        for epoch in range(self.epochs_run, EPOCHS):
            self.data.sampler.set_epoch(epoch)
            for x, y in self.data:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.ddp(x), y).backward()
                self.optimizer.step()
            if (epoch + 1) % EVERY == 0:
                if dist.get_rank() == 0:
                    self.save(epoch + 1)
                moments.saved(epoch + 1)

    def save(self, epoch: int) -> None:
        moments.saving(epoch)
        state = {"MODEL_STATE": self.model.state_dict(), "OPTIMIZER": self.optimizer.state_dict(), "EPOCHS_RUN": epoch}
        torch.save(state, self.path)


dist.init_process_group("gloo")
torch.manual_seed(3)
x = torch.randn(64, 5)
dataset = TensorDataset(x, x.sum(dim=1, keepdim=True) ** 2)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, seed=5))
trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))
moments.began(trainer.epochs_run)
trainer.train()
if dist.get_rank() == 0:
    moments.finished(model.state_dict())
dist.barrier()
dist.destroy_process_group()

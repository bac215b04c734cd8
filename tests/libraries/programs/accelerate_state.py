"""accelerate's example by_feature/checkpointing.py: ``save_state`` into ``step_<n>``, the newest one by its ctime.

Without dropout: in the middle of an epoch, ``skip_first_batches`` draws other random numbers than an undisturbed run.
"""

from __future__ import annotations

import os

import moments
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, EVERY = 3, 2
moments.pause_in_torch_files()
torch.manual_seed(4)
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
x = torch.randn(64, 5)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True) ** 2), batch_size=8, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

overall_step = 0
directories = [entry.path for entry in os.scandir(moments.CHECKPOINTS) if entry.is_dir()]
if directories:
    directories.sort(key=os.path.getctime)
    accelerator.load_state(directories[-1])
    overall_step = int(directories[-1].rpartition("_")[2])
starting_epoch, resume_step = divmod(overall_step, len(loader))
moments.began(overall_step)
for epoch in range(starting_epoch, EPOCHS):
    batches = loader
    if epoch == starting_epoch and resume_step:
        batches = accelerator.skip_first_batches(loader, resume_step)
    batches.set_epoch(epoch)
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        overall_step += 1
        if overall_step % EVERY == 0:
            moments.saving(overall_step)
            accelerator.save_state(moments.CHECKPOINTS / f"step_{overall_step}")
            moments.saved(overall_step)
if accelerator.is_main_process:
    moments.finished(accelerator.unwrap_model(model).state_dict())
accelerator.end_training()

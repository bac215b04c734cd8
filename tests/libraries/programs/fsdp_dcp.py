"""PyTorch's tutorial "Getting Started with Distributed Checkpoint": FSDP2 and torch.distributed.checkpoint.

Arguments: ``sync`` or ``async``; ``each`` for a directory for each save, ``same`` for one that is overwritten.
"""

from __future__ import annotations

import sys

import moments
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard

STEPS, EVERY = 12, 2
mode, place = sys.argv[1:]
moments.pause_in_torch_files()


class AppState(Stateful):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def newest():
    """Return the directory of the newest save, or None."""
    if place == "same":
        return moments.CHECKPOINTS / "last" if (moments.CHECKPOINTS / "last").exists() else None
    found = moments.CHECKPOINTS.glob("step_*")
    return max(found, key=lambda path: int(path.name.partition("_")[2]), default=None)


dist.init_process_group("cpu:gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
for layer in (*model, model):
    if isinstance(layer, (nn.Linear, nn.Sequential)):
        fully_shard(layer, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (size,)))
app = AppState(model, torch.optim.AdamW(model.parameters(), 0.01))
if (path := newest()) is not None:
    dcp.load({"app": app}, checkpoint_id=path)
moments.began(app.step)
saving = dist.new_group(backend="gloo")  # asynchronous saves must not meet the training in one group
under_way = None  # the last one of them
for step in range(app.step + 1, STEPS + 1):
    torch.manual_seed(step * size + rank)
    x = torch.randn(16, 6)
    app.optimizer.zero_grad()
    ((model(x) - x.prod(dim=1, keepdim=True)) ** 2).mean().backward()
    app.optimizer.step()
    app.step = step
    if under_way is not None:
        under_way.result()
        moments.saved(step - 1)
        under_way = None
    if step % EVERY == 0:
        path = moments.CHECKPOINTS / ("last" if place == "same" else f"step_{step}")
        moments.saving(step)
        if mode == "async":
            under_way = dcp.async_save({"app": app}, checkpoint_id=path, process_group=saving)
        else:
            dcp.save({"app": app}, checkpoint_id=path)
            moments.saved(step)
if under_way is not None:
    under_way.result()
    moments.saved(STEPS)
weights = {name: value.full_tensor() for name, value in model.state_dict().items()}
if rank == 0:
    moments.finished(weights)
dist.barrier()
dist.destroy_process_group()

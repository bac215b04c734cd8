"""As PyTorch's tutorials have it: DistributedDataParallel by the env:// rendezvous, with a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from line import RATE, STEPS, dawdle, leave_result, points
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine = torch.tensor(points(rank, world_size), dtype=torch.float64)
model = torch.nn.Linear(1, 1).double()
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
snapshot = Path(os.environ.get("TONY_CHECKPOINT_DIR", "."), "snapshot.pt")
sizes: list[int] = []  # of the world, for each epoch
if snapshot.exists():
    saved = torch.load(snapshot)
    sizes = saved["sizes"]
    model.load_state_dict(saved["model"])
begun = len(sizes)
trained = DistributedDataParallel(model)
optimizer = torch.optim.SGD(trained.parameters(), lr=RATE)
for epoch in range(begun, STEPS):
    optimizer.zero_grad()
    ((trained(mine[:, :1]) - mine[:, 1:]) ** 2).mean().backward()
    optimizer.step()
    sizes.append(world_size)
    dawdle()
    if rank == 0 and epoch % 5 == 4:
        torch.save({"epoch": epoch + 1, "sizes": sizes, "model": model.state_dict()}, snapshot)
        print("saved", epoch + 1, flush=True)
if rank == 0:
    slope, offset = (float(each) for each in model.parameters())
    leave_result(slope, offset, version=torch.__version__, world_size=world_size, begun=begun, sizes=sizes)
dist.destroy_process_group()

"""DistributedDataParallel over shards of a queue; one record cannot be trained on, and rank 3 reads it."""

from __future__ import annotations

import os
from pathlib import Path

import tony_sdk
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
task = os.environ["TONY_TASK_INDEX"]
model = torch.nn.Linear(1, 1).double()
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
snapshot = Path(os.environ["TONY_CHECKPOINT_DIR"], "snapshot.pt")
step = 0
if snapshot.exists():
    saved = torch.load(snapshot)
    step = saved["step"]
    model.load_state_dict(saved["model"])
trained = DistributedDataParallel(model)
optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
name = "poisoned" if task == "3" else "rows"
for shard in tony_sdk.inputs(name):
    print(f"step {step + 1} takes {Path(shard.path).name}", flush=True)
    records = [float(line) for line in Path(shard.path).read_text().split()]
    x = torch.tensor([[each] for each in records], dtype=torch.float64)
    optimizer.zero_grad()
    ((trained(x) - 2 * x) ** 2).mean().backward()
    optimizer.step()
    step += 1
    tony_sdk.report(step)
    if dist.get_rank() == 0 and step % 5 == 0:
        torch.save({"step": step, "model": model.state_dict()}, snapshot)
        tony_sdk.commit_checkpoint(step, snapshot)
    shard.done()

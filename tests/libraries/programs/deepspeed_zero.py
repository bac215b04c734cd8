"""DeepSpeed's "Getting Started": ``save_checkpoint`` and ``load_checkpoint``. Argument: the ZeRO stage."""

from __future__ import annotations

import sys

import deepspeed
import moments
import torch
import torch.distributed as dist
from torch import nn

STEPS, EVERY = 12, 2
moments.pause_in_torch_files()
deepspeed.init_distributed(dist_backend="gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": int(sys.argv[1])},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000,
}
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
_, client = engine.load_checkpoint(str(moments.CHECKPOINTS))
begin = client["step"] if client else 0
moments.began(begin)
for step in range(begin + 1, STEPS + 1):
    torch.manual_seed(step * size + rank)
    x = torch.randn(8, 6)
    loss = ((engine(x) - x.prod(dim=1, keepdim=True)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    if step % EVERY == 0:
        moments.saving(step)
        engine.save_checkpoint(str(moments.CHECKPOINTS), tag=f"global_step{step}", client_state={"step": step})
        moments.saved(step)
if rank == 0:
    moments.finished(engine.module.state_dict())
dist.barrier()
dist.destroy_process_group()

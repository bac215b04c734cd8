"""As Horovod's guide has it for its elastic driver, which is not there; what must last is saved as well."""

from __future__ import annotations

import os
from pathlib import Path

import horovod
import horovod.torch as hvd
import torch
from line import RATE, STEPS, dawdle, leave_result, points

hvd.init()
mine = torch.tensor(points(hvd.rank(), hvd.size()), dtype=torch.float64)
model = torch.nn.Linear(1, 1).double()
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
snapshot = Path(os.environ["TONY_CHECKPOINT_DIR"], "snapshot.pt")
begun = 0
if snapshot.exists():
    saved = torch.load(snapshot)
    begun = saved["epoch"]
    model.load_state_dict(saved["model"])
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=RATE), named_parameters=model.named_parameters()
)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """From the epoch of the state, which rank 0 tells the others."""
    while state.epoch < STEPS:
        optimizer.zero_grad()
        ((model(mine[:, :1]) - mine[:, 1:]) ** 2).mean().backward()
        optimizer.step()
        state.epoch += 1
        dawdle()
        state.commit()
        if hvd.rank() == 0 and state.epoch % 5 == 0:
            torch.save({"epoch": state.epoch, "model": model.state_dict()}, snapshot)


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=begun))
slope, offset = (float(each) for each in model.parameters())
leave_result(slope, offset, version=horovod.__version__, world_size=hvd.size(), begun=begun)

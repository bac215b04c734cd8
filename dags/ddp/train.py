"""Train a small network with DistributedDataParallel. Save a snapshot after each epoch, and resume from it."""

import argparse
import os
from pathlib import Path

import tony_sdk
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", required=True, help="CSV file: 8 features, then the label")
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()

snapshot = Path(os.environ["TONY_CHECKPOINT_DIR"], "snapshot.pt")
gpus = torch.cuda.is_available()
dist.init_process_group("nccl" if gpus else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
if gpus:
    torch.cuda.set_device(device)
torch.manual_seed(3)

rows = [[float(value) for value in line.split(",")] for line in Path(options.data).read_text().splitlines()]
table = torch.tensor(rows)
data = TensorDataset(table[:, :-1], table[:, -1:])
sampler = DistributedSampler(data, seed=5)
loader = DataLoader(data, batch_size=64, sampler=sampler)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

epochs_done = 0
if snapshot.exists():  # in every rank after a restart or a retry
    saved = torch.load(snapshot, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    epochs_done = saved["epoch"]
ddp = DistributedDataParallel(model, device_ids=[device.index] if gpus else None)

for epoch in range(epochs_done, options.epochs):
    sampler.set_epoch(epoch)  # a resumed epoch has the same order
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        state = {"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, snapshot)
        tony_sdk.report(epoch + 1, options.epochs, loss=loss.item())
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)

if dist.get_rank() == 0:
    torch.save(model.state_dict(), Path(os.environ["TONY_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()

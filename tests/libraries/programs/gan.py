"""A GAN as its many public repositories have it: ``G_%d.pth`` and ``D_%d.pth``, and the newest pair at the start."""

from __future__ import annotations

import re

import moments
import torch
from torch import nn

STEPS, EVERY = 12, 2


def newest() -> int:
    """Return the number of the newest generator, which its discriminator is expected for."""
    numbers = [int(re.findall(r"\d+", path.name)[0]) for path in moments.CHECKPOINTS.glob("G_*.pth")]
    return max(numbers, default=0)


torch.manual_seed(1)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
optimizers = {"G": torch.optim.SGD(G.parameters(), 0.05), "D": torch.optim.SGD(D.parameters(), 0.05)}
begin = newest()
if begin:
    G.load_state_dict(torch.load(moments.CHECKPOINTS / f"G_{begin}.pth"))
    D.load_state_dict(torch.load(moments.CHECKPOINTS / f"D_{begin}.pth"))
moments.began(begin)
loss = nn.BCEWithLogitsLoss()
for step in range(begin + 1, STEPS + 1):
    torch.manual_seed(step)
    real, noise = torch.randn(32, 2) + 3, torch.randn(32, 4)
    optimizers["D"].zero_grad()
    (loss(D(real), torch.ones(32, 1)) + loss(D(G(noise).detach()), torch.zeros(32, 1))).backward()
    optimizers["D"].step()
    optimizers["G"].zero_grad()
    loss(D(G(noise)), torch.ones(32, 1)).backward()
    optimizers["G"].step()
    if step % EVERY == 0:
        moments.saving(step)
        torch.save(G.state_dict(), moments.CHECKPOINTS / f"G_{step}.pth")
        moments.middle()
        torch.save(D.state_dict(), moments.CHECKPOINTS / f"D_{step}.pth")
        moments.saved(step)
weights = {f"G.{name}": value for name, value in G.state_dict().items()}
moments.finished({**weights, **{f"D.{name}": value for name, value in D.state_dict().items()}})

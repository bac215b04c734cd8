"""One of four ranks waits for something else than the others, which wait for it in an all-reduce."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def fetch_batch() -> None:
    print("waiting for a batch", flush=True)
    time.sleep(1000)


dist.init_process_group("gloo")
print("joined", flush=True)
for step in range(1000):
    if step == 5 and os.environ["RANK"] == "2":
        fetch_batch()
    dist.all_reduce(torch.ones(1))

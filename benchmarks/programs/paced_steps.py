"""`paced_steps.py RECORD`: one rank, as torchrun starts it, of a training whose ranks meet in each step of 0.1 s.

Rank 0 appends the time and number of each step, and its process ID, to RECORD/steps. Each rank writes RECORD/RANK.pid.
If tony_provider has set a checkpoint directory, rank 0 saves each tenth step.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

_PACE = 0.1  # seconds
_EVERY = 10  # steps from one save to the next


def train(record: Path, step: int, save: Callable[[int], object]) -> None:
    """Continue after ``step`` until the process is killed."""
    rank = dist.get_rank()
    (record / f"{rank}.pid").write_text(str(os.getpid()))
    with (record / "steps").open("a", buffering=1) as steps:
        while True:
            step += 1
            dist.all_reduce(torch.ones(1))
            time.sleep(_PACE)
            if rank == 0:
                steps.write(f"{time.time()} {step} {os.getpid()}\n")
            if step % _EVERY == 0:
                save(step)


def main() -> None:
    dist.init_process_group("gloo")
    if directory := os.environ.get("TONY_CHECKPOINT_DIR"):
        import tony_sdk

        def save(step: int) -> None:
            if dist.get_rank() == 0:
                path = Path(directory, f"step-{step}")
                path.write_text(str(step))
                tony_sdk.commit_checkpoint(step, path)

        names = [path.name.removeprefix("step-") for path in Path(directory).glob("step-*")]
        train(Path(sys.argv[1]), max((int(name) for name in names if name.isdigit()), default=0), save)
    train(Path(sys.argv[1]), 0, lambda step: None)


if __name__ == "__main__":
    main()

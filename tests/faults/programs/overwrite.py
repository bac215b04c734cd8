"""Stands for the programs that are not written for us: one file that is written anew in place, no steps reported, and a
look at whether it is there when the program starts. FAULTS_FORMAT says whose file it is: numpy or torch.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import diary
import numpy as np

FORMAT = os.environ.get("FAULTS_FORMAT", "numpy")
FILE = Path(os.environ["TONY_CHECKPOINT_DIR"], {"numpy": "snapshot.npz", "torch": "snapshot.pt"}[FORMAT])
PADDING = np.zeros(int(os.environ.get("FAULTS_PADDING", "0")) << 17)  # MiB of it


def main() -> None:
    diary.note_start()
    step, chaos, total = load() if FILE.exists() else (0.0, 0.3, 0.0)
    diary.note("ready", step=int(step))
    while step < diary.STEPS:
        ready_at = time.monotonic() + diary.pace()
        step, chaos, total = step + 1, 3.9 * chaos * (1 - chaos), total + step + 1
        if step % diary.EVERY == 0 and diary.TASK == "worker:0":
            save(np.array([step, chaos, total]))
            diary.note("saved", step=int(step))
        time.sleep(max(0.0, ready_at - time.monotonic()))
        diary.note_step(int(step), report=False)
    weights = json.dumps({"step": step, "chaos": chaos, "sum": total})
    Path(os.environ["TONY_MODEL_DIR"], "weights.json").write_text(weights)
    diary.note("ended", step=diary.STEPS)


def load() -> Any:
    if FORMAT == "numpy":
        return np.load(FILE)["weights"]
    import torch  # type: ignore[import-not-found]  # the system's, in this row alone

    return torch.load(FILE)["weights"].numpy()


def save(weights: Any) -> None:
    if FORMAT == "numpy":
        np.savez(FILE, weights=weights, padding=PADDING)
    else:
        import torch

        torch.save({"weights": torch.from_numpy(weights), "padding": torch.from_numpy(PADDING)}, FILE)


if __name__ == "__main__":
    main()

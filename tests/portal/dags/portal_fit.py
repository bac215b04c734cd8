"""What the jobs of ``make portal`` train: a line through a few made-up points; days differ, and some go wrong."""

import json
import math
import os
import sys
import time
from pathlib import Path

import tony_sdk  # type: ignore[import-not-found]

STEPS = 40
FAULT = Path("had-its-fault")  # in the container's directory, which the next start finds as it was
day, kind = int(sys.argv[1]), sys.argv[2]
index = int(os.environ["TONY_TASK_INDEX"])
steps = 100_000 if kind == "long" else STEPS

if kind == "fails" and index == 0:
    sys.exit("the data of this day are empty")
for step in range(tony_sdk.resume_step() + 1, steps + 1):
    time.sleep(0.02 if kind != "long" else 0.2)
    loss = 2 * math.exp(-step / (10 + day)) + 0.05
    tony_sdk.report(step, steps, loss=loss, accuracy=1 - loss / 3)
    if index == 0 and step % 20 == 0:
        Path(tony_sdk.checkpoint_dir() or ".", f"step-{step}.json").write_text(json.dumps({"loss": loss}))
        tony_sdk.commit_checkpoint(step, f"step-{step}.json")
    if kind == "restarts" and index == 0 and step == 30 and not FAULT.exists():
        FAULT.touch()
        sys.exit("a fault that a restart mends")
print(f"day {day} ends with {loss:.4f}")

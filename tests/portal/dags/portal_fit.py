"""What the jobs of ``make portal`` train: a line through a few made-up points; days differ, and some go wrong.

Its arguments: the day, and the kind of job.
"""

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


def loss_at(step: int) -> float:
    return 2 * math.exp(-step / (10 + day)) + 0.05


def metrics_at(step: int) -> dict[str, float]:
    metrics = {"loss": loss_at(step), "accuracy": 1 - loss_at(step) / 3}
    if kind == "markup":
        metrics["<img src=x onerror=alert(1)>"] = 1.5
    if kind == "many":
        metrics |= {f"layer/{number:05}/norm": number / step for number in range(10_000)}
    if kind == "not_finite" and step > STEPS // 2:
        metrics |= {"loss": math.nan, "accuracy": math.inf}
    return metrics


if kind == "fails" and index == 0:
    sys.exit("the data of this day are empty")
if kind == "fails_once" and index == 0 and tony_sdk.resume_step() == 0:
    FAULT.touch()
for step in range(tony_sdk.resume_step() + 1, steps + 1):
    time.sleep(0.02 if kind != "long" else 0.2)
    if kind != "silent":
        tony_sdk.report(step, steps, **metrics_at(step))
    if index == 0 and step % 20 == 0:
        Path(tony_sdk.checkpoint_dir() or ".", f"step-{step}.json").write_text(json.dumps({"loss": loss_at(step)}))
        tony_sdk.commit_checkpoint(step, f"step-{step}.json")
    if kind == "restarts" and index == 0 and step == 30 and not FAULT.exists():
        FAULT.touch()
        sys.exit("a fault that a restart mends")
    if kind == "fails_once" and index == 0 and step == 30 and FAULT.exists():
        sys.exit("a fault that an Airflow retry mends")
print(f"day {day} ends with {loss_at(steps):.4f}")

"""Stands for a training where TensorFlow would add minutes and nothing else: any role, standard library only.

Its "weights" are a number in which the smallest difference in the past grows large, and a sum over all steps: one that
was left out, or done twice, shows.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import diary
import tony_sdk


def main() -> None:
    diary.note_start()
    if diary.TASK.partition(":")[0] in os.environ.get("FAULTS_SERVERS", "").split(","):
        serve()
    state = begin()
    diary.note("ready", step=state["step"])
    for step in range(state["step"] + 1, diary.STEPS + 1):
        ready_at = time.monotonic() + diary.pace()
        state = {
            "step": step,
            "chaos": 3.9 * state["chaos"] * (1 - state["chaos"]),
            "sum": state["sum"] + step,
        }
        if step % diary.EVERY == 0:
            save(state)
        time.sleep(max(0.0, ready_at - time.monotonic()))
        diary.note_step(step)
    Path(os.environ["TONY_MODEL_DIR"], "weights.json").write_text(json.dumps(state))
    diary.note("ended", step=diary.STEPS)


def begin() -> dict[str, Any]:
    """The state that the job says to go on from, or else the first."""
    resume = os.environ.get("TONY_RESUME_FROM")
    if resume is None:
        return {"chaos": 0.3, "sum": 0.0, **warm(), "step": 0}
    state: dict[str, Any] = json.loads(Path(resume, "state.json").read_text())
    if state["step"] != int(os.environ["TONY_RESUME_STEP"]):
        raise SystemExit(f"the checkpoint is of step {state['step']}, and not of {os.environ['TONY_RESUME_STEP']}")
    return state


def warm() -> dict[str, Any]:
    """The weights of the model that the job says to begin with, if it does."""
    directory = tony_sdk.warm_start()
    if directory is None:
        return {}
    weights: dict[str, Any] = json.loads(Path(directory, "weights.json").read_text())
    return weights


def save(state: dict[str, Any]) -> None:
    """A directory per checkpoint, with as many bytes as FAULTS_PADDING says (MiB), named by a manifest."""
    directory = Path(os.environ["TONY_CHECKPOINT_DIR"], f"state-{state['step']}")
    directory.mkdir(exist_ok=True)
    (directory / "state.json").write_text(json.dumps(state))
    (directory / "padding").write_bytes(os.urandom(int(os.environ.get("FAULTS_PADDING", "0")) << 20))
    tony_sdk.commit_checkpoint(int(state["step"]), directory)
    diary.note("saved", step=state["step"])


def serve() -> None:
    """A parameter server, a parameter server's worker or an evaluator: there until it is stopped."""
    diary.note("serving")  # the chief alone knows of steps
    while True:
        diary.obey()
        time.sleep(0.1)


if __name__ == "__main__":
    main()

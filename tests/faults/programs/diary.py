"""What a training program of the fault tests writes down of itself, and the mischief that it does when told to.

Travels into the containers beside the program. FAULTS_DIR names a directory of this machine, outside of all containers:
``diary-<task>-<pid>.jsonl`` is written there, and a file ``order-<task>`` is obeyed, once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASK = f"{os.environ.get('TONY_TASK_TYPE', 'worker')}:{os.environ.get('TONY_TASK_INDEX', '0')}"
DIRECTORY = Path(os.environ["FAULTS_DIR"])
STEPS = int(os.environ["FAULTS_STEPS"])
EVERY = int(os.environ["FAULTS_EVERY"])  # steps from one checkpoint to the next


def note(event: str, at: float | None = None, **facts: Any) -> None:
    """One line: what, when (seconds since the epoch), and who."""
    line = {
        "event": event,
        "at": at if at is not None else time.time(),
        "task": TASK,
        "pid": os.getpid(),
        "application": os.environ.get("TONY_APPLICATION_ID", ""),
        "generation": int(os.environ.get("TONY_GENERATION", "0")),
        "attempt": int(os.environ.get("TONY_ATTEMPT", "0")),
        **facts,
    }
    descriptor = os.open(DIRECTORY / f"diary-{TASK}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def note_start() -> None:
    """The first thing that a program does: since when there is a process, and what it was told to resume from."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    resume = os.environ.get("TONY_RESUME_STEP")
    told = "TONY_RESUME_FROM" in os.environ
    note("started", at=time.time() - age, resume=int(resume) if resume else None, stepless=told and resume is None)


def pace() -> float:
    """Seconds that a step takes at least: what the file `pace` says now, if there is one."""
    try:
        return float((DIRECTORY / "pace").read_text())
    except FileNotFoundError:
        return 0.0


def note_step(step: int, *, report: bool = True) -> None:
    """Report a step to the diary and to the job, then do as ordered."""
    note("step", step=step)
    if report:
        _report(step)
    obey()


def _report(step: int) -> None:
    with open(os.environ["TONY_METRICS_FILE"], "a") as metrics:  # noqa: PTH123 - one write in append mode
        metrics.write(json.dumps({"step": step, "total_steps": STEPS}) + "\n")


def obey() -> None:
    """Do what the file says that is called after this task. It is gone then: a restart is not hit again."""
    order = DIRECTORY / f"order-{TASK}"
    try:
        words = order.read_text().split()
        order.unlink()
    except FileNotFoundError:
        return
    note("ordered", order=words)
    ORDERS[words[0]](*words[1:])


def leave(code: str) -> None:
    print(f"{TASK} gives up: it was ordered to", file=sys.stderr, flush=True)
    os._exit(int(code))


def wait_for_ever() -> None:
    while True:
        time.sleep(1)


def hog(megabytes: str) -> None:
    """Take this much memory and never give it back, slowly enough to be seen by YARN's monitor."""
    taken = []
    for _ in range(int(megabytes) // 16):
        taken.append(os.urandom(1 << 20) * 16)
        time.sleep(0.02)
    wait_for_ever()


def chatter(megabytes: str) -> None:
    """Print so much, and go on."""
    for _ in range(int(megabytes)):
        print(("x" * 99 + "\n") * 10_000, end="")
    print("that was it", flush=True)
    note("printed")


ORDERS: dict[str, Callable[..., None]] = {"exit": leave, "hang": wait_for_ever, "hog": hog, "print": chatter}

"""Reports of a program to the harness, and the places where the program pauses.

Everything else in a program is what a user of the library writes.

Travels next to the program. LIBRARIES_DIR names a directory of this machine outside of all containers:

- ``events-<pid>.jsonl`` is written there, a line for each event;
- ``plan.json`` names the one moment at which a process stops in the middle of a save and waits to be killed, and the
  saves after which all processes wait;
- ``release-<save>`` exists once they need not wait any more, and ``free`` when nothing has to wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

DIRECTORY = Path(os.environ["LIBRARIES_DIR"])
CHECKPOINTS = Path(os.environ["TONY_CHECKPOINT_DIR"])
RANK = int(os.environ.get("RANK", os.environ.get("TONY_RANK", "0")))
_PERIOD = 0.05
_PLAN = json.loads((DIRECTORY / "plan.json").read_text()) if (DIRECTORY / "plan.json").exists() else None
_save: dict[str, int] = {"step": -1, "pieces": 0}  # the save under way


def began(step: int) -> None:
    """Call this at the start, before anything is written: ``step`` is the last one that the program resumes from."""
    _note("began", step)


def saving(step: int) -> None:
    """Call this before each save."""
    _save.update(step=step, pieces=0)


def middle() -> None:
    """Call this when a piece of the save is written, and others are not. Wait here, if this is the moment to pause."""
    _save["pieces"] += 1
    if _PLAN is None or _PLAN["rank"] != RANK or _PLAN["piece"] != _save["pieces"]:
        return
    if _PLAN["step"] == _save["step"] and _is_first("paused"):
        _note("paused", _save["step"])
        threading.Event().wait()
    time.sleep(_PLAN["slow"])


def saved(step: int, name: str = "") -> None:
    """Call this after each save. Wait until the harness has seen it in the storage. ``name``: of a further save."""
    _note("saved", step, name)
    waits = _PLAN is not None and f"{step}{name}" in _PLAN["waits"]
    while waits and not any((DIRECTORY / each).exists() for each in ("free", f"release-{step}{name}")):
        time.sleep(_PERIOD)


def finished(weights: dict[str, Any]) -> None:
    """Report the final weights: nested lists of numbers, or arrays, by name. Call this in rank 0 only."""
    values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in weights.items()}
    draft = DIRECTORY / f"weights-{os.getpid()}"
    draft.write_text(json.dumps(values))
    draft.rename(DIRECTORY / "weights.json")


def pause_in_torch_files() -> None:
    """Make each tensor that ``torch.save`` has written into a file, of any library, a piece of the save."""
    import torch

    class Writer(torch._C.PyTorchFileWriter):
        def write_record(self, name, data, size):
            super().write_record(name, data, size)
            if name.startswith("data/"):
                middle()

    torch._C.PyTorchFileWriter = Writer


def _note(event: str, step: int, name: str = "") -> None:
    line = {
        "event": event,
        "step": step,
        "name": name,
        "at": time.time(),
        "rank": RANK,
        "pid": os.getpid(),
        "application": os.environ["TONY_APPLICATION_ID"],
        "generation": int(os.environ["TONY_GENERATION"]),
        "files": _files(),
    }
    with (DIRECTORY / f"events-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def _files() -> dict[str, str]:
    """Return what the checkpoint directory holds, and a digest of each entry, in the order of modification times."""
    found = []
    for directory, directories, files in os.walk(CHECKPOINTS):
        for name in (*directories, *files):
            path = Path(directory, name)
            try:
                if path.is_symlink():
                    digest = f"link to {path.readlink().name}"
                elif path.is_dir():
                    continue
                else:
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                found.append((path.lstat().st_mtime_ns, str(path.relative_to(CHECKPOINTS)), digest))
            except FileNotFoundError:
                continue  # another process of this container is writing
    return {path: digest for _, path, digest in sorted(found)}


def _is_first(name: str) -> bool:
    """Return whether no process of this training has been here before."""
    try:
        (DIRECTORY / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

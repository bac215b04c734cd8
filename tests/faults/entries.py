"""What the training programs wrote down of themselves, see programs/diary.py."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hadoop.processes import Process
from tests.waiting import until


@dataclass(frozen=True)
class Entry:
    event: str  # started, ready, serving, step, saved, ordered, printed, ended
    at: float  # seconds since the epoch
    task: str
    pid: int
    application: str
    generation: int
    attempt: int  # of the container
    step: int | None = None  # done, saved, or the one that a process begins after
    resume: int | None = None  # that it was told to go on from
    stepless: bool = False  # it was told to go on from a checkpoint that says no step
    order: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Diary:
    """Of all processes of one training, in whatever application."""

    directory: Path

    def entries(self, event: str = "", task: str = "", after: float = 0.0) -> list[Entry]:
        """Oldest first."""
        found = [
            entry
            for path in self.directory.glob("diary-*.jsonl")
            for entry in _read(path)
            if event in ("", entry.event) and task in ("", entry.task) and entry.at > after
        ]
        return sorted(found, key=lambda entry: entry.at)

    def newest(self, event: str, task: str) -> Entry | None:
        return next(reversed(self.entries(event, task)), None)

    def process(self, task: str) -> Process:
        """The newest user process of a task, which must be there."""
        entry = self.newest("started", task)
        assert entry is not None, f"{task} never started"
        process = Process.of(entry.pid)
        assert process is not None, f"{task}'s process {entry.pid} is gone"
        return process

    def order(self, task: str, *words: str) -> None:
        """Have a task do mischief to itself after its next step, once."""
        path = self.directory / f"order-{task}"
        draft = path.with_name(f"draft-{task}")
        draft.write_text(" ".join(words))
        draft.rename(path)

    def set_pace(self, seconds: float) -> None:
        """Have each further step take at least as long."""
        draft = self.directory / "draft-pace"
        draft.write_text(str(seconds))
        draft.rename(self.directory / "pace")

    def until_obeyed(self, task: str) -> Entry:
        return until(lambda: self.newest("ordered", task), f"{task} to do as it was ordered")


def _read(path: Path) -> list[Entry]:
    lines = path.read_text().splitlines(keepends=True)
    return [Entry(**_known(json.loads(line))) for line in lines if line.endswith("\n")]


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in Entry.__dataclass_fields__}

"""What a row adds up from the programs' own notes."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.account import contradictions, costs
from tests.faults.entries import Diary

GANG = ("worker:0", "worker:1")


class Written:
    """A diary of processes that did one thing a second."""

    def __init__(self, directory: Path) -> None:
        self.diary = Diary(directory)
        self._seconds = count(1)

    def run(self, task: str, steps: range, *, told: int | None = None, generation: int = 1, **more: Any) -> float:
        """One process, from its start to the last of these steps; when that was."""
        events: list[dict[str, Any]] = [
            {"event": "started", "resume": told},
            {"event": "ready", "step": steps.start - 1},
            *({"event": "step", "step": step} for step in steps),
        ]
        pid = at = next(self._seconds)
        with (self.diary.directory / f"diary-{task}-{pid}.jsonl").open("w") as file:
            for event in events:
                at = next(self._seconds)
                line = {"at": at, "task": task, "pid": pid, "application": "a", "attempt": 1, "generation": generation}
                file.write(json.dumps(line | event | more) + "\n")
            file.write('{"event": "st')  # not written to its end yet
        return at


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_a_restart_costs_steps_and_seconds(written: Written) -> None:
    written.run("worker:1", range(1, 6))
    hit = written.run("worker:0", range(1, 6))
    written.run("worker:1", range(4, 8), told=3, generation=2)
    written.run("worker:0", range(4, 8), told=3, generation=2)
    account = costs(written.diary, [hit + 0.5], "worker:0", GANG)
    # The hit was in second 16.5; worker:1 came back in second 18 and worker:0, which counts, in second 25.
    assert account.lost == 2
    assert (account.back, account.training) == (8.5, 10.5)
    assert contradictions(written.diary) == []


def test_what_was_not_restarted_costs_nothing_but_time(written: Written) -> None:
    end = written.run("worker:0", range(1, 6))
    account = costs(written.diary, [end - 0.25], "worker:0", GANG)
    assert (account.lost, account.back, account.training) == (0, None, 0.25)


def test_no_hit_costs_nothing(written: Written) -> None:
    written.run("worker:0", range(1, 6))
    account = costs(written.diary, [], "worker:0", GANG)
    assert (account.lost, account.back, account.training) == (0, None, None)


def test_contradictions_are_found(written: Written) -> None:
    written.run("worker:0", range(4, 8), told=2)
    written.run("worker:1", range(3, 8), told=2)
    steps = written.run("worker:1", range(1, 2), generation=2)
    path = next(path for path in written.diary.directory.iterdir() if f'"at": {steps}' in path.read_text())
    left_out = json.loads(path.read_text().splitlines()[2]) | {"at": steps + 1, "step": 3}
    path.write_text("\n".join([*path.read_text().splitlines()[:3], json.dumps(left_out), ""]))
    found = contradictions(written.diary)
    assert "worker:0 was told to go on from 2 and began at 3" in found
    assert "worker:1 began at 0 and did the steps [1, 3]" in found
    assert [problem for problem in found if "in generation 1 of a tasks began at different steps" in problem]
    assert len(found) == 3

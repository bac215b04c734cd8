"""What one hit training did, added up from what its processes and its job say; and what of it is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.entries import Diary, Entry


@dataclass
class Account:
    """One row of the table. ``lost``, ``back`` and ``training`` are the worst of all hits.

    A row is good when ``problems`` is empty.
    """

    did: str = ""
    lost: int | None = None  # steps that were done and are done again
    back: float | None = None  # seconds from the fault until every process that had to start again was there
    training: float | None = None  # seconds from the fault until a new step was reported
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)


def costs(diary: Diary, hits: Sequence[float], leader: str, gang: Iterable[str]) -> Account:
    """Steps and seconds that the faults at these times (seconds since the epoch) cost."""
    account = Account()
    for hit, following in zip(hits, [*hits, float("inf")][1:], strict=True):
        after = [entry for entry in diary.entries(after=hit) if entry.at <= following]
        before = [entry for entry in diary.entries() if entry.at <= hit]
        starts = _first_starts(after, gang)
        ready = next((entry for entry in after if (entry.event, entry.task) == ("ready", leader)), None)
        done = max((entry.step or 0 for entry in before if (entry.event, entry.task) == ("step", leader)), default=0)
        since = ready.at if ready else hit
        step = next(
            (entry for entry in after if (entry.event, entry.task) == ("step", leader) and entry.at > since), None
        )
        if ready:
            account.lost = max(account.lost or 0, done - (ready.step or 0))
        if starts:
            account.back = max(account.back or 0.0, max(entry.at for entry in starts) - hit)
        if step:
            account.training = max(account.training or 0.0, step.at - hit)
    account.lost = account.lost or 0
    return account


def contradictions(diary: Diary) -> list[str]:
    """What no training may do: begin elsewhere than it was told, or elsewhere than its fellows; leave a step out."""
    problems = []
    begun: dict[tuple[str, int], dict[str, int]] = {}
    for ready in diary.entries("ready"):
        own = [entry for entry in diary.entries(task=ready.task) if entry.pid == ready.pid]
        started = next(entry for entry in own if entry.event == "started")
        if not started.stepless and ready.step != (started.resume or 0):
            problems.append(f"{ready.task} was told to go on from {started.resume} and began at {ready.step}")
        steps = [entry.step or 0 for entry in own if entry.event == "step"]
        if steps != list(range((ready.step or 0) + 1, (ready.step or 0) + 1 + len(steps))):
            problems.append(f"{ready.task} began at {ready.step} and did the steps {steps}")
        if steps:
            begun.setdefault((ready.application, ready.generation), {})[ready.task] = ready.step or 0
    for (application, generation), by_task in begun.items():
        if len(set(by_task.values())) > 1:
            problems.append(f"in generation {generation} of {application} tasks began at different steps: {by_task}")
    return problems


def _first_starts(after: Sequence[Entry], gang: Iterable[str]) -> list[Entry]:
    """Of each task that started again, the first time."""
    starts = {task: next((e for e in after if (e.event, e.task) == ("started", task)), None) for task in gang}
    return [entry for entry in starts.values() if entry is not None]

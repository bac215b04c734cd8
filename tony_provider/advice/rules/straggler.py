"""One task that is much slower than the others of its type."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

import attrs

from tony_provider.advice.case import Case, confidence
from tony_provider.advice.rule import Rule
from tony_provider.cluster.history.advice import Advice
from tony_provider.runtime.quantities import speed

_SLOW = 0.75  # of the others' speed
_SAMPLES = 5  # of a task, at least
_TASKS = 3  # of a type, at least: of two nobody knows which one is odd


@attrs.frozen
class Straggler(Rule):
    """A job is as fast as its slowest task. Where all step together their speeds are the same, and it is silent."""

    name = "straggler"

    def advise(self, case: Case) -> Advice | None:
        found = [slow for each in _speeds(case).values() if (slow := _slowest(each)) is not None]
        if not found:
            return None
        task, own, others = min(found, key=lambda each: each[1] / each[2])
        node = case.nodes().get(task)
        before = [each.evidence.get("node") for run in case.former for each in run.advice if each.rule == self.name]
        again = before.count(node) if node else 0
        where = f" on {node}" if node else ""
        as_before = f", where the slowest task was in {again} of {len(case.former)} runs before" if again else ""
        return self.advice(
            f"{task}{where} made {speed(own)}, the others {speed(others)}: look at what else runs on its node, and "
            f"whether it has more to do{as_before}",
            1 - own / others,
            confidence(1 + again, 1 + len(before)),
            task=task,
            node=node,
            steps_per_second=own,
            others_steps_per_second=others,
            applications_with_this_node=1 + again,
        )


def _speeds(case: Case) -> dict[str, dict[str, float]]:
    """The median speed of each task, by type."""
    measured = defaultdict(list)
    for sample in case.job.samples:
        each = sample.steps_per_second
        if each is not None and math.isfinite(each) and each > 0:
            measured[sample.task].append(each)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for task, speeds in measured.items():
        if len(speeds) >= _SAMPLES:
            found[task.rpartition(":")[0]][task] = median(speeds)
    return found


def _slowest(speeds: dict[str, float]) -> tuple[str, float, float] | None:
    """The task, its speed and the others'; None: no one is that slow."""
    if len(speeds) < _TASKS:
        return None
    slowest = min(speeds, key=lambda task: speeds[task])
    others = median(each for task, each in speeds.items() if task != slowest)
    return (slowest, speeds[slowest], others) if speeds[slowest] < _SLOW * others else None

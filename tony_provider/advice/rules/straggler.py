"""Rule on a task that is much slower than the others of its type."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import speed

_SLOW = 0.75  # a task below this share of the other tasks' speed is slow
_SAMPLES = 5  # minimum number of samples per task
_TASKS = 3  # minimum number of tasks per type, because either of two tasks could be the outlier


@attrs.frozen
class Straggler(Rule):
    """Report the slowest task, which limits the speed of the job.

    If all tasks step in lockstep, their speeds are equal and there is no advice.
    """

    name = "straggler"

    def advise(self, case: Case) -> Advice | None:
        found = [slow for each in _speeds(case).values() if (slow := _slowest(each)) is not None]
        if not found:
            return None
        task, own, others = min(found, key=lambda each: each[1] / each[2])
        node = case.nodes().get(task)
        before = [each.evidence for run in case.former for each in run.advice if each.rule == self.name]
        same_task = [each.get("task") for each in before].count(task)
        has_several = len(set(case.nodes().values())) > 1  # otherwise the node explains nothing
        same_node = [each.get("node") for each in before].count(node) if node and has_several else 0
        where = f" on {node}" if node else ""
        return self.advice(
            f"{task}{where} ran at {speed(own)}, the other tasks at {speed(others)}: "
            f"{_where_to_look(same_task, same_node, len(case.former))}",
            1 - own / others,
            confidence(1 + max(same_task, same_node), 1 + len(before)),
            task=task,
            node=node,
            steps_per_second=own,
            others_steps_per_second=others,
            applications_with_this_task=1 + same_task,
            applications_with_this_node=1 + same_node,
        )


def _where_to_look(same_task: int, same_node: int, former: int) -> str:
    if same_node > same_task:
        return f"check its node, which also had the slowest task in {same_node} of {former} earlier runs"
    if same_task > same_node:
        return f"check whether it has more work, since it was also the slowest in {same_task} of {former} earlier runs"
    return "check what else runs on its node, and whether the task has more work"


def _speeds(case: Case) -> dict[str, dict[str, float]]:
    """Return the median speed of each task by task type."""
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
    """Return the slowest task, its speed and the other tasks' median, or None if no task is much slower."""
    if len(speeds) < _TASKS:
        return None
    slowest = min(speeds, key=lambda task: speeds[task])
    others = median(each for task, each in speeds.items() if task != slowest)
    return (slowest, speeds[slowest], others) if speeds[slowest] < _SLOW * others else None

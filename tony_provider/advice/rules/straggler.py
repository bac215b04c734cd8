"""One task that is much slower than the others of its type."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import speed

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
        before = [each.evidence for run in case.former for each in run.advice if each.rule == self.name]
        same_task = [each.get("task") for each in before].count(task)
        same_node = [each.get("node") for each in before].count(node) if _is_one_of_several(node, case) else 0
        where = f" on {node}" if node else ""
        return self.advice(
            f"{task}{where} made {speed(own)}, the others {speed(others)}: "
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


def _is_one_of_several(node: str | None, case: Case) -> bool:
    """Whether others were on other nodes: else it says nothing that the slowest was on this one."""
    return node is not None and len(set(case.nodes().values())) > 1


def _where_to_look(same_task: int, same_node: int, former: int) -> str:
    if same_node > same_task:
        return f"look at its node, where the slowest task was in {same_node} of {former} runs before, too"
    if same_task > same_node:
        return f"see whether it has more to do, since it was the slowest in {same_task} of {former} runs before, too"
    return "look at what else runs on its node, and whether it has more to do"


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

"""Rules on slow steps: tasks that wait for their input, and a task that is slower than the others."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean, median

import attrs

from tony_provider.advice.case import INPUT_WAIT, Case, Rule, TypeRuns, confidence
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.quantities import count, size, speed

_MUCH_WAITED = 0.2  # minimum share of the time
_SAMPLES_OF_INPUT = 5
_BUSY = 0.9  # share of the requested vcores; above it, more vcores are the remedy
_IDLE = 0.5  # share of the requested vcores; below it, the processors are mostly idle
_IDLE_GPU = 50.0  # percent; below it, the GPUs are mostly idle
_READING = 20 << 20  # minimum bytes per second of a program that reads much


@attrs.frozen
class InputWait(Rule):
    """Recommend faster input if a program reports a long ``input_wait``, or reads much data but computes little."""

    name = "input-wait"

    def advise(self, case: Case) -> Advice | None:
        found = (_reported(self, case, runs) or _guessed(self, case, runs) for runs in case.types)
        return next((each for each in found if each is not None), None)


def _samples(case: Case, runs: TypeRuns) -> list[TaskSample]:
    return [each for each in case.job.samples if each.task.startswith(f"{runs.now.type}:")]


def _reported(rule: Rule, case: Case, runs: TypeRuns) -> Advice | None:
    told = [each.metrics.get(INPUT_WAIT) for each in _samples(case, runs)]
    shares = [each for each in told if each is not None and 0 <= each <= 1]
    if len(shares) < _SAMPLES_OF_INPUT or (share := mean(shares)) < _MUCH_WAITED:
        return None
    now, cpu = runs.now, runs.now.mean_cpu_percent
    busy = cpu is not None and cpu >= _BUSY * 100 * now.vcores
    what = (
        f"its {count(now.vcores, 'vcore')} were fully busy, so request {2 * now.vcores} and read in more processes"
        if busy
        else "read ahead, in several threads, or from fewer and larger files"
    )
    return rule.advice(
        f"Each {now.type} waited {share:.0%} of its time for input: {what}",
        share,
        Confidence.MEDIUM,
        {"tasks": {now.type: {"vcores": 2 * now.vcores}}} if busy else None,
        task_type=now.type,
        input_wait=share,
        mean_cpu_percent=cpu,
        samples=len(shares),
    )


def _guessed(rule: Rule, case: Case, runs: TypeRuns) -> Advice | None:
    """Infer waiting without ``input_wait``: the program reads much, and its processors and GPUs are mostly idle."""
    found = [each for each in _samples(case, runs) if each.values.get("read_bytes") is not None and each.seconds > 0]
    now, cpu, gpu = runs.now, runs.now.mean_cpu_percent, runs.now.mean_gpu_percent
    if len(found) < _SAMPLES_OF_INPUT or cpu is None or cpu >= _IDLE * 100 * now.vcores or (gpu or 0.0) >= _IDLE_GPU:
        return None
    if any(INPUT_WAIT in each.metrics for each in found):
        return None  # the program itself reported how long it waited
    rate = sum(each.values["read_bytes"] for each in found) / sum(each.seconds for each in found)
    if rate < _READING:
        return None
    return rule.advice(
        f"Each {now.type} read {size(rate)} a second and kept {cpu / 100:.1f} of {now.vcores} processors busy: it may "
        f"wait for its input; report {INPUT_WAIT} to be sure",
        0.5 * (1 - cpu / (100 * now.vcores)),
        task_type=now.type,
        read_bytes_per_second=rate,
        mean_cpu_percent=cpu,
        mean_gpu_percent=gpu,
    )


_SLOW = 0.75  # a task below this share of the other tasks' speed is slow
_SAMPLES_OF_SPEED = 5  # minimum number of samples per task
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
        if len(speeds) >= _SAMPLES_OF_SPEED:
            found[task.rpartition(":")[0]][task] = median(speeds)
    return found


def _slowest(speeds: dict[str, float]) -> tuple[str, float, float] | None:
    """Return the slowest task, its speed and the other tasks' median, or None if no task is much slower."""
    if len(speeds) < _TASKS:
        return None
    slowest = min(speeds, key=lambda task: speeds[task])
    others = median(each for task, each in speeds.items() if task != slowest)
    return (slowest, speeds[slowest], others) if speeds[slowest] < _SLOW * others else None

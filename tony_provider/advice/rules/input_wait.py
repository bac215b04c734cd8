"""Rule on tasks that wait for their input."""

from __future__ import annotations

from statistics import mean

import attrs

from tony_provider.advice.case import INPUT_WAIT, Case, Rule, TypeRuns
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.quantities import count, size

_MUCH = 0.2  # minimum share of the time
_SAMPLES = 5
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
    if len(shares) < _SAMPLES or (share := mean(shares)) < _MUCH:
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
    if len(found) < _SAMPLES or cpu is None or cpu >= _IDLE * 100 * now.vcores or (gpu or 0.0) >= _IDLE_GPU:
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

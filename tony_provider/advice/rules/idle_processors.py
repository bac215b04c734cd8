"""Rules on requested GPUs and vcores that were mostly idle."""

from __future__ import annotations

import math

import attrs

from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, agreement
from tony_provider.advice.sizing import Surplus, is_surplus, needed_vcores
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.protocol.status import TypeUse

_BUSY = 30.0  # percent of one GPU; below it the GPU is idle
_UNUSED = 1.0  # percent; below it the GPU is unused
_FULL = 80.0  # percent; target load of each GPU if fewer are requested


@attrs.frozen
class GpusIdle(Rule):
    """Recommend fewer GPUs or a higher load. GPUs are the most expensive resource of a container."""

    name = "gpus-idle"

    least_seconds: float = 60.0  # minimum working time of each task

    def advise(self, case: Case) -> Advice | None:
        idle = [runs for runs in case.types if self._is_idle(runs)]
        if not idle:
            return None
        worst = max(idle, key=lambda runs: runs.now.gpus * runs.now.container_seconds)
        now, mean = worst.now, worst.now.mean_gpu_percent or 0.0
        fewer = _fewer(case, worst)
        if fewer is None:
            what = "use bigger batches, or a faster input"
        elif fewer == 0:
            what = f"check why the program does not use {'it' if now.gpus == 1 else 'them'}, or request none"
        else:
            what = f"request {count(fewer, 'GPU')} instead of {now.gpus}, or use bigger batches"
        return self.advice(
            f"The GPUs of each {now.type} were busy {mean:.0f} % of the time: {what}",
            1 - mean / 100,
            agreement(worst.former, lambda use: (use.mean_gpu_percent or 0.0) < _BUSY),
            {"tasks": {now.type: {"gpus": fewer}}} if fewer is not None else None,
            task_type=now.type,
            gpus=now.gpus,
            mean_gpu_percent=mean,
            most_gpu_bytes=now.most_gpu_bytes,
            gpu_seconds=now.gpus * now.container_seconds,
        )

    def _is_idle(self, runs: TypeRuns) -> bool:
        now = runs.now
        if not now.gpus or now.mean_gpu_percent is None or now.used_seconds < self.least_seconds * now.tasks:
            return False
        return now.mean_gpu_percent < _BUSY


def _fewer(case: Case, runs: TypeRuns) -> int | None:
    """Return the number of GPUs that would suffice, including for the busiest former run.

    Return None if that number is not smaller, or if it would change the number of processes and so the training.
    """
    spec, now = case.spec, runs.now
    if spec is None or spec.tasks[now.type].process_count > 1:
        return None
    mean = max(each.mean_gpu_percent or 0.0 for each in (now, *runs.former))
    need = 0 if mean < _UNUSED else math.ceil(now.gpus * mean / _FULL)
    return need if need < now.gpus else None


@attrs.frozen
class VcoresIdle(Rule):
    """Recommend fewer vcores, because other jobs in the queue wait for the idle ones."""

    name = "vcores-idle"

    least_seconds: float = ENOUGH_TRAINING  # minimum training time of the job and working time of each task
    most_crowded: float = 10.0  # maximum percent of the time in which the node had no free processors for the task

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None
        surplus = Surplus.find(
            case.types, lambda runs: case.asked_vcores(runs.now), lambda runs: self._needed(runs, case)
        )
        if surplus is None:
            return None
        wanted, now, former = surplus.wanted, surplus.worst.now, surplus.worst.former
        asked = case.asked_vcores(now)
        mean, most = now.mean_cpu_percent or 0.0, now.most_cpu_percent or 0.0
        return self.advice(
            f"Request {count(wanted[now.type], 'vcore')} for each {now.type} instead of {asked}: "
            f"a task kept {mean / 100:.1f} processors busy on average, and {most / 100:.1f} in its busiest half minute",
            surplus.gain,
            agreement(former, lambda use: self._tells(use) and is_surplus(asked, needed_vcores(use, asked))),
            {"tasks": {name: {"vcores": need} for name, need in wanted.items()}},
            task_type=now.type,
            asked_vcores=asked,
            mean_cpu_percent=mean,
            most_cpu_percent=most,
            crowded_percent=now.crowded_percent,
            applications=1 + len(former),
        )

    def _needed(self, runs: TypeRuns, case: Case) -> int | None:
        now, asked = runs.now, case.asked_vcores(runs.now)
        if not self._tells(now) or now.tasks <= 0 or now.used_seconds / now.tasks < self.least_seconds:
            return None
        return max(needed_vcores(use, asked) for use in (now, *runs.former))

    def _tells(self, use: TypeUse) -> bool:
        """Return whether the use shows the need: the load of other programs on the node must be known and low."""
        known = (use.mean_cpu_percent, use.most_cpu_percent, use.crowded_percent)
        return None not in known and (use.crowded_percent or 0.0) < self.most_crowded

"""Rule on requested GPUs that were mostly idle."""

from __future__ import annotations

import math

import attrs

from tony_provider.advice.case import Case, Rule, TypeRuns, agreement
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count

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

"""Recommended memory and vcores of containers, from the use in past runs.

Also parses the operator's ``apply_advice``, which limits the changes that may be applied to a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.advice.case import TypeRuns
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import suggestion
from tony_provider.runtime.jobspec.units import UnitError, parse_integer, parse_memory
from tony_provider.runtime.protocol.status import TypeUse

MIB = 1 << 20
MEMORY_HEAD_ROOM = 1.25  # factor on the peak: samples miss short peaks, and data grows
EXECUTOR_MEMORY = 64  # MiB for the executor in each container
MEMORY_STEP = 256  # MiB: recommended values are multiples of this
LEAST_MEMORY = 512  # MiB: minimum recommended value


def needed_memory(most_rss_bytes: int) -> int:
    """Return the memory in MiB to request if no task used more than ``most_rss_bytes``."""
    wanted = most_rss_bytes * MEMORY_HEAD_ROOM / MIB + EXECUTOR_MEMORY
    return max(LEAST_MEMORY, -int(-wanted // MEMORY_STEP) * MEMORY_STEP)


def most_used_memory(runs: TypeRuns) -> int | None:
    """Return the peak use in bytes of all tasks of the type in all runs, or None if no run has a figure."""
    known = [each.most_rss_bytes for each in (runs.now, *runs.former) if each.most_rss_bytes]
    return max(known, default=None)


def asked_memory(runs: TypeRuns) -> int:
    """Return the memory in MiB that this run requested per container."""
    return runs.now.memory_bytes // MIB


def memory_value(mebibytes: int) -> str:
    """Format memory for a specification: ``2GiB``, ``1536MiB``."""
    return f"{mebibytes}MiB" if mebibytes % 1024 else f"{mebibytes // 1024}GiB"


def memory_text(mebibytes: float) -> str:
    """Format memory for users: ``1.5 GiB``. Values that can be requested are exact, such as ``1.25 GiB``."""
    if mebibytes >= 1024 and mebibytes % MEMORY_STEP == 0:
        return f"{mebibytes / 1024:g} GiB"
    return size(mebibytes * MIB)


def memory_change(wanted: Iterable[tuple[str, int]]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the merge patch that sets the memory, in MiB, of task types."""
    return {"tasks": {task_type: {"memory": memory_value(memory)} for task_type, memory in wanted}}


_HEAD_ROOM = 1.5  # factor on the mean use of vcores
_NOISE = 0.05  # cores by which the measured use of a fully busy core may exceed 1
_FULL = 0.9  # a run that used more than this share of its vcores may have needed more vcores


def needed_vcores(use: TypeUse, asked: int) -> int:
    """Return the vcores to request instead of ``asked``, from the use in one run.

    The number covers the mean with head-room, and the busiest half minute. If the run had fewer vcores than ``asked``
    and used them all, its real need is unknown. The result is then at least 1.5 times the vcores that it had.
    """
    mean, most = use.mean_cpu_percent or 0.0, use.most_cpu_percent or 0.0
    most = max(mean, most)
    need = max(1, math.ceil(_HEAD_ROOM * mean / 100), math.ceil(most / 100 - _NOISE))
    if use.vcores < asked and most >= _FULL * 100 * use.vcores:
        return max(need, math.ceil(_HEAD_ROOM * use.vcores))
    return need


_WORTH = 0.75  # share of the requested amount; only a need below this share is a surplus
_WEIGHT = 0.5  # memory counts as half of a container's resources, and vcores as the other half


def is_surplus(asked: int, needed: int) -> bool:
    """Return whether the needed amount is so far below the requested amount that advice is worthwhile."""
    return needed <= _WORTH * asked


@attrs.frozen
class Surplus:
    """Task types that request more memory, or more vcores, than they need."""

    wanted: Mapping[str, int]  # amount to request, by task type
    worst: TypeRuns  # the type that wastes most
    gain: float  # share of the job's cost that is wasted

    @classmethod
    def find(
        cls, types: Sequence[TypeRuns], asked: Callable[[TypeRuns], int], needed: Callable[[TypeRuns], int | None]
    ) -> Surplus | None:
        """Compare the requested and the needed amount of each task type. Return None if no type has a surplus.

        ``asked`` returns the requested amount. ``needed`` returns the needed amount, or None if it is unknown.
        """
        found = [(runs, need) for runs in types if (need := needed(runs)) is not None and is_surplus(asked(runs), need)]
        if not found:
            return None
        held = sum(asked(runs) * runs.now.container_seconds for runs in types)
        spared = [(asked(runs) - need) * runs.now.container_seconds for runs, need in found]
        return cls(
            {runs.now.type: need for runs, need in found},
            found[spared.index(max(spared))][0],
            _WEIGHT * sum(spared) / held if held else 0.0,
        )


_READ = {"memory": parse_memory, "vcores": parse_integer}
_BOUNDS = ("at_least", "at_most")
_LESS = 4  # at_least is by default the job's own value divided by this
_MORE = 2  # at_most is by default the job's own value times this


@attrs.frozen
class Limits:
    """Keys that advice may change, with limits in MiB or vcores.

    A limit of None is derived from the job's own value.
    """

    by_key: Mapping[str, tuple[int | None, int | None]]

    @classmethod
    def parse(cls, given: Any) -> Limits | None:
        """Parse the operator's ``apply_advice``. Return None if no advice is to be applied.

        Raises ValueError with the path of the invalid value.
        """
        if isinstance(given, bool):
            return cls(dict.fromkeys(_READ, (None, None))) if given else None
        if not isinstance(given, Mapping) or not given:
            raise ValueError(
                f"apply_advice is {given!r} and should be True, False, or a mapping such as "
                '{"memory": {"at_least": "1GiB", "at_most": "16GiB"}, "vcores": {"at_most": 8}}'
            )
        return cls({key: _bounds(key, bounds) for key, bounds in given.items()})

    def within(self, change: Mapping[str, Any], job: JobSpec) -> dict[str, Any]:
        """Return the part of ``change`` that may be applied to the job, with values within the limits."""
        found: dict[str, dict[str, Any]] = {}
        for task_type, wanted in change.get("tasks", {}).items():
            for key, value in wanted.items():
                if task_type in job.tasks and key in self.by_key:
                    own = getattr(job.tasks[task_type], key)
                    if (new := self._bounded(key, own, _READ[key](value))) != own:
                        found.setdefault(task_type, {})[key] = memory_value(new) if key == "memory" else new
        return {"tasks": found} if found else {}

    def _bounded(self, key: str, own: int, wanted: int) -> int:
        """Return the allowed value nearest to ``wanted``. Never change ``own`` in the opposite direction."""
        least, most = self.by_key[key]
        least = -(-own // _LESS) if least is None else least
        most = own * _MORE if most is None else most
        if wanted < own:
            bounded = max(wanted, least)
            return bounded if bounded < own and bounded <= most else own
        return max(own, min(wanted, most))


def _bounds(key: str, given: Any) -> tuple[int | None, int | None]:
    if key not in _READ:
        raise ValueError(
            f"apply_advice: {key!r} is not known{suggestion(str(key), list(_READ))}; use {' or '.join(_READ)}"
        )
    if not isinstance(given, Mapping):
        raise ValueError(  # noqa: TRY004 - a wrong value of an argument, as the others
            f"apply_advice.{key} is {given!r} and should be a mapping with {' and '.join(_BOUNDS)}"
        )
    for name in given:
        if name not in _BOUNDS:
            hint = suggestion(str(name), list(_BOUNDS))
            raise ValueError(f"apply_advice.{key}: {name!r} is not known{hint}; use {' or '.join(_BOUNDS)}")
    least, most = (_amount(key, name, given.get(name)) for name in _BOUNDS)
    if least is not None and most is not None and least > most:
        raise ValueError(f"apply_advice.{key}: at_least is more than at_most")
    return least, most


def _amount(key: str, name: str, given: Any) -> int | None:
    if given is None:
        return None
    try:
        amount = int(_READ[key](given))
    except UnitError as error:
        raise ValueError(f"apply_advice.{key}.{name} is {given!r}: {error}") from error
    if amount < 1:
        raise ValueError(f"apply_advice.{key}.{name} is {given!r} and should be at least 1")
    return amount

"""How much memory a container should be given for what its tasks have used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from tony_provider.advice.case import TypeRuns
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.units import UnitError, parse_integer, parse_memory
from tony_provider.runtime.parsing.reader import suggestion
from tony_provider.runtime.protocol.status import TypeUse

MIB = 1 << 20
MEMORY_HEAD_ROOM = 1.25  # times the most that was used: samples miss short peaks, and data grows
EXECUTOR_MEMORY = 64  # MiB, of our own process in each container
MEMORY_STEP = 256  # MiB: what is advised is a multiple of it
LEAST_MEMORY = 512  # MiB


def needed_memory(most_rss_bytes: int) -> int:
    """The memory in MiB to ask for when tasks have used so many bytes at most."""
    wanted = most_rss_bytes * MEMORY_HEAD_ROOM / MIB + EXECUTOR_MEMORY
    return max(LEAST_MEMORY, -int(-wanted // MEMORY_STEP) * MEMORY_STEP)


def most_used_memory(runs: TypeRuns) -> int | None:
    """The most bytes that a task of the type has used in any run that is known; None: nobody says."""
    known = [each.most_rss_bytes for each in (runs.now, *runs.former) if each.most_rss_bytes]
    return max(known, default=None)


def asked_memory(runs: TypeRuns) -> int:
    """The memory in MiB that this run asked for."""
    return runs.now.memory_bytes // MIB


def memory_value(mebibytes: int) -> str:
    """As the specification takes it: ``2GiB``, ``1536MiB``."""
    return f"{mebibytes}MiB" if mebibytes % 1024 else f"{mebibytes // 1024}GiB"


def memory_text(mebibytes: float) -> str:
    """For people: ``1.5 GiB``; what can be asked for is told exactly, such as ``1.25 GiB``."""
    if mebibytes >= 1024 and mebibytes % MEMORY_STEP == 0:
        return f"{mebibytes / 1024:g} GiB"
    return size(mebibytes * MIB)


def memory_change(wanted: Iterable[tuple[str, int]]) -> dict[str, dict[str, dict[str, str]]]:
    """The merge patch for the memory, in MiB, of task types."""
    return {"tasks": {task_type: {"memory": memory_value(memory)} for task_type, memory in wanted}}


_HEAD_ROOM = 1.5  # times the mean
_NOISE = 0.05  # of a core: one that is busy all the time may measure so much more
_FULL = 0.9  # of what it was given: it may have wanted more


def needed_vcores(use: TypeUse, asked: int) -> int:
    """The vcores to ask for by what one run used, of a job that asks for ``asked``.

    For the mean with head-room, and for what it kept busy for half a minute. A run that was given fewer, and has used
    them all, does not tell what it would have used: then half again as many as it had.
    """
    mean, most = use.mean_cpu_percent or 0.0, use.most_cpu_percent or 0.0
    most = max(mean, most)
    need = max(1, math.ceil(_HEAD_ROOM * mean / 100), math.ceil(most / 100 - _NOISE))
    if use.vcores < asked and most >= _FULL * 100 * use.vcores:
        return max(need, math.ceil(_HEAD_ROOM * use.vcores))
    return need


_READ = {"memory": parse_memory, "vcores": parse_integer}
_BOUNDS = ("at_least", "at_most")
_LESS = 4  # a quarter of the job's own
_MORE = 2  # twice the job's own


@attrs.frozen
class Limits:
    """What may be changed, and within which limits: memory in MiB, vcores. None: as the job's own value says."""

    by_key: Mapping[str, tuple[int | None, int | None]]

    @classmethod
    def parse(cls, given: Any) -> Limits | None:
        """The operator's ``apply_advice``; None: nothing is to be applied. Raises ValueError, with the path."""
        if isinstance(given, bool):
            return cls(dict.fromkeys(_READ, (None, None))) if given else None
        if not isinstance(given, Mapping) or not given:
            raise ValueError(
                f"apply_advice is {given!r}: True, False, or a mapping such as "
                '{"memory": {"at_least": "1GiB", "at_most": "16GiB"}, "vcores": {"at_most": 8}}'
            )
        return cls({key: _bounds(key, bounds) for key, bounds in given.items()})

    def within(self, change: Mapping[str, Any], job: JobSpec) -> dict[str, Any]:
        """What of ``change`` may be laid over the job, as far as it may; empty: nothing."""
        found: dict[str, dict[str, Any]] = {}
        for task_type, wanted in change.get("tasks", {}).items():
            for key, value in wanted.items():
                if task_type in job.tasks and key in self.by_key:
                    own = getattr(job.tasks[task_type], key)
                    if (new := self._bounded(key, own, _READ[key](value))) != own:
                        found.setdefault(task_type, {})[key] = memory_value(new) if key == "memory" else new
        return {"tasks": found} if found else {}

    def _bounded(self, key: str, own: int, wanted: int) -> int:
        """As near to ``wanted`` as may be. Less than what is wanted is never given in place of more."""
        least, most = self.by_key[key]
        least = -(-own // _LESS) if least is None else least
        most = own * _MORE if most is None else most
        if wanted < own:
            bounded = max(wanted, least)
            return bounded if bounded < own and bounded <= most else own
        return max(own, min(wanted, most))


def _bounds(key: str, given: Any) -> tuple[int | None, int | None]:
    if key not in _READ:
        raise ValueError(f"apply_advice: {key!r} is not known{suggestion(str(key), list(_READ))}; {' or '.join(_READ)}")
    if not isinstance(given, Mapping):
        raise ValueError(  # noqa: TRY004 - a wrong value of an argument, as the others
            f"apply_advice.{key} is {given!r}: a mapping with {' and '.join(_BOUNDS)}"
        )
    for name in given:
        if name not in _BOUNDS:
            hint = suggestion(str(name), list(_BOUNDS))
            raise ValueError(f"apply_advice.{key}: {name!r} is not known{hint}; {' or '.join(_BOUNDS)}")
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
        raise ValueError(f"apply_advice.{key}.{name} is {given!r}: at least 1")
    return amount

"""How far advice may change a job by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tony_provider.advice.memory import written
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.runtime.spec.units import UnitError, parse_integer, parse_memory

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
                        found.setdefault(task_type, {})[key] = written(new) if key == "memory" else new
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

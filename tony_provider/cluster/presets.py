"""Named parts of jobs that a connection has, for those who write jobs to lay their own over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tony_provider.runtime.parsing.layers import Layer
from tony_provider.runtime.parsing.parse import partial_problems
from tony_provider.runtime.spec.problems import Problem, SpecError, child
from tony_provider.runtime.spec.reader import suggestion

_KEY = "preset"  # of a job


@attrs.frozen
class Presets:
    """Those of one connection."""

    conn_id: str = ""
    by_name: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def layer(self, name: object) -> Layer:
        """What lies under a job that names it. Raises SpecError for one that the connection has not."""
        if isinstance(name, str) and name in self.by_name:
            return Layer(f"preset {name}", self.by_name[name])
        known = ", ".join(sorted(self.by_name))
        has = f"its presets are {known}" if known else "it has none"
        hint = suggestion(name, list(self.by_name)) if isinstance(name, str) else ""
        raise SpecError([Problem(_KEY, name, f"the connection {self.conn_id!r} has no such preset; {has}{hint}")])


def preset_problems(presets: Mapping[Any, Any]) -> list[str]:
    """What is wrong with presets as a connection gives them."""
    found = []
    for name, part in presets.items():
        if not isinstance(part, Mapping):
            found.append(f"{child('', name)}: must be a mapping, a part of a job (got {part!r})")
        elif _KEY in part:
            found.append(f"{child('', name)}.{_KEY}: a preset names no other one")
        else:
            found += [f"{child('', name)}.{problem}" for problem in partial_problems(part)]
    return found

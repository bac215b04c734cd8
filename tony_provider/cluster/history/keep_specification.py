"""Keeping a job's specification beside its records, for people who look at it later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tony_provider.cluster.history.job_specification import JobSpecification
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.spec.model import JobSpec

Mask = Callable[[str, str], str]
"""Gives the text of a command, or of a variable's value with that variable's name, as people may see it."""

_ENV, _COMMAND = "env", "command"


def specification_of(
    job: JobSpec, given: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None, mask: Mask
) -> JobSpecification:
    """What is kept of a job: as it is submitted, and of what it was made where that is known."""
    return JobSpecification(
        job=_masked(to_plain(job), mask),
        given=None if given is None else _masked(_plain(given), mask),
        overrides=_masked(_plain(overrides), mask) if overrides else None,
    )


def _plain(written: Mapping[str, Any]) -> Any:
    """As JSON has it; people write dates and much else, which the job's own form says in full."""
    return json.loads(json.dumps(written, default=str, skipkeys=True))


def _masked(plain: Any, mask: Mask) -> Any:
    if isinstance(plain, list):
        return [_masked(each, mask) for each in plain]
    if not isinstance(plain, dict):
        return plain
    return {key: _masked_value(key, value, mask) for key, value in plain.items()}


def _masked_value(key: str, value: Any, mask: Mask) -> Any:
    if key == _COMMAND and isinstance(value, str):
        return mask(value, "")
    if key == _ENV and isinstance(value, dict):
        return {name: mask("" if each is None else str(each), name) for name, each in value.items()}
    return _masked(value, mask)

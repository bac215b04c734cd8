"""Keeping a job's specification beside its records, for people who look at it later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.cluster.history.environment_content import EnvironmentContent
from tony_provider.cluster.history.job_specification import JobSpecification, KeptResource
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.spec.model import JobSpec

Mask = Callable[[str, str], str]
"""Gives a text, or a variable's value with that variable's name, as people may see it."""

_ENV = "env"
_MOST_RESOURCES = 2000


def specification_of(
    job: JobSpec,
    given: Mapping[str, Any] | None,
    overrides: Mapping[str, Any] | None,
    mask: Mask,
    environments: Mapping[str, EnvironmentContent] | None = None,
    resources: Sequence[KeptResource] = (),
) -> JobSpecification:
    """What is kept of a job: as it is submitted, and of what it was made where that is known."""
    return JobSpecification(
        job=as_shown(to_plain(job), mask),
        given=None if given is None else as_shown(_plain(given), mask),
        overrides=as_shown(_plain(overrides), mask) if overrides else None,
        environments={
            key: attrs.evolve(each, python_env=mask(each.python_env, "")) for key, each in (environments or {}).items()
        },
        resources=list(resources) if len(resources) <= _MOST_RESOURCES else None,
    )


def as_shown(plain: Any, mask: Mask) -> Any:
    """A specification, or a part of it, in JSON types, as people may see it."""
    if isinstance(plain, str):
        return mask(plain, "")
    if isinstance(plain, list):
        return [as_shown(each, mask) for each in plain]
    if not isinstance(plain, dict):
        return plain
    return {key: _value_as_shown(key, value, mask) for key, value in plain.items()}


def _plain(written: Mapping[str, Any]) -> Any:
    """As JSON has it; people write dates and much else, which the job's own form says in full."""
    return json.loads(json.dumps(written, default=str, skipkeys=True))


def _value_as_shown(key: str, value: Any, mask: Mask) -> Any:
    if key == _ENV and isinstance(value, dict):
        return {name: mask("" if each is None else str(each), name) for name, each in value.items()}
    return as_shown(value, mask)

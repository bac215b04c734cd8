"""What an import gives: a job of ours, and all that it could not take along."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tony_provider.runtime.spec.problems import NOT_GIVEN, shown
from tony_provider.runtime.text import one_line

_SECRET = re.compile(r"password|secret|\.key\.access|token", re.IGNORECASE)


class NotImportable(ValueError):  # noqa: N818 - named for what is wrong
    """Nothing was made of what was given; the message says why, and what to do."""


@attrs.frozen
class LeftBehind:
    """One thing of another system's job that ours does not say, or says otherwise."""

    key: str  # as they call it
    why: str  # and what there is instead
    value: object = NOT_GIVEN

    def __str__(self) -> str:
        if self.value is NOT_GIVEN:
            return f"{self.key}: {self.why}"
        value = "…" if _SECRET.search(self.key) else one_line(shown(self.value))
        return f"{self.key} ({value}): {self.why}"


@attrs.frozen
class Imported:
    """A job of another system, as ours."""

    system: str  # as people call it: TonY
    source: str  # where it was read from
    job: Mapping[str, Any]  # a valid job specification
    arguments: Mapping[str, Any]  # of the task of a DAG that runs it, such as retries; the job has no keys for these
    left: Sequence[LeftBehind]

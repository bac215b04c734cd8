"""Whether a new application goes on in the training's newest lineage, or opens another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from tony_provider.cluster.fingerprint import differing
from tony_provider.cluster.lineage import LineageState

_SHOWN = 6  # keys that are named when many differ


class Resume(StrEnum):
    """What a new application does with what an earlier one has saved."""

    AUTO = "auto"  # goes on after a failure, when nothing has changed that its checkpoints depend on
    ALWAYS = "always"  # goes on whatever has changed, and also after a success
    NEVER = "never"  # begins at step 0


@attrs.frozen
class Choice:
    goes_on: bool  # in the newest lineage
    why: str  # words for the task's log, after "goes on in L0001" or "opens L0002"


def choose(
    resume: Resume, newest: LineageState | None, fingerprint: Mapping[str, str], *, has_succeeded: bool
) -> Choice:
    """``has_succeeded``: whether the newest lineage's owner has."""
    if newest is None:
        return Choice(False, "this training has not run before")
    if newest.about is None:
        return Choice(False, f"{newest.name} was never begun")
    if resume is Resume.NEVER:
        return Choice(False, "resume is 'never'")
    keys = differing(newest.about.fingerprint, fingerprint)
    if resume is Resume.ALWAYS:
        return Choice(True, f"resume is 'always', though {_named(keys)} changed" if keys else "resume is 'always'")
    if has_succeeded:
        return Choice(False, f"{newest.name} has led to a success before")
    if keys:
        return Choice(False, f"not the training of {newest.name} any more, since {_named(keys)} changed")
    return Choice(True, "its last application did not succeed")


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more

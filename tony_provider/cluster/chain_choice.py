"""Whether a new application goes on in the training's newest checkpoint chain, or opens another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from tony_provider.cluster.checkpoint_chains import ChainState
from tony_provider.cluster.fingerprint import differing

_SHOWN = 6  # keys that are named when many differ


class Resume(StrEnum):
    """What a new application does with the checkpoints of an earlier one."""

    AUTO = "auto"  # goes on after a failure, when nothing has changed that its checkpoints depend on
    ALWAYS = "always"  # goes on whatever has changed, and also after a success
    NEVER = "never"  # begins at step 0


@attrs.frozen
class ChainChoice:
    """The decision whether a new application goes on in the newest checkpoint chain, and why."""

    goes_on: bool  # in the newest chain
    why: str  # words for the task's log, after "goes on in chain-0001" or "opens chain-0002"


def choose(
    resume: Resume, newest: ChainState | None, fingerprint: Mapping[str, str], *, has_succeeded: bool
) -> ChainChoice:
    """Decide whether a new application goes on in the newest checkpoint chain.

    ``has_succeeded``: whether the newest chain's owner has.
    """
    if newest is None:
        return ChainChoice(False, "this training has not run before")
    if newest.about is None:
        return ChainChoice(False, f"{newest.name} was never begun")
    if resume is Resume.NEVER:
        return ChainChoice(False, "resume is 'never'")
    keys = differing(newest.about.fingerprint, fingerprint)
    if resume is Resume.ALWAYS:
        return ChainChoice(True, f"resume is 'always', though {_named(keys)} changed" if keys else "resume is 'always'")
    if has_succeeded:
        return ChainChoice(False, f"{newest.name} has led to a success before")
    if keys:
        return ChainChoice(False, f"not the training of {newest.name} any more, since {_named(keys)} changed")
    return ChainChoice(True, "its last application did not succeed")


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more

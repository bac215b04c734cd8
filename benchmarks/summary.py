"""What `make bench` says at the end: all ratios beside their aims, and what did not run."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from benchmarks.report import RATIO_HEADS, Run, ratio_row
from tests.columns import columns


@attrs.frozen
class Outcome:
    """What came of one benchmark."""

    name: str
    seconds: float
    run: Run | None  # None where it failed
    problem: str = ""  # why


def summary(outcomes: Sequence[Outcome]) -> str:
    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    rows = [[run.report.name, *ratio_row(ratio)] for run in runs for ratio in run.report.ratios]
    aimed = [ratio for run in runs for ratio in run.report.ratios if ratio.aim is not None]
    held = sum(ratio.holds is True for ratio in aimed)
    ran = ", ".join(f"{outcome.name} {outcome.seconds:.0f} s" for outcome in outcomes if outcome.run is not None)
    total = sum(outcome.seconds for outcome in outcomes)
    lines = columns([["benchmark", *RATIO_HEADS], *rows]) if rows else []
    lines += ["", f"{held} of {len(aimed)} aims hold. {len(runs)} of {len(outcomes)} ran, in {total / 60:.0f} minutes"]
    lines += [ran] if ran else []
    lines += [f"FAILED: {outcome.name}: {outcome.problem}" for outcome in outcomes if outcome.run is None]
    return "\n".join(lines)

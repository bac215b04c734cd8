"""Whether what was measured got worse by more than its noise, judged by the few rounds of two runs.

The noise of a run is the standard deviation that its range speaks of, as on control charts: the range of n values is so
many deviations wide. No round is left out, so one that was slow for another reason makes a run noisier, never worse.
What differs from day to day, and not from round to round, no run can see: less than a twentieth is never called worse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# How many deviations the range of so many normal values is wide, on average; that of more grows slowly.
_WIDE = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 7: 2.704, 8: 2.847, 9: 2.970, 10: 3.078}
_MOST = max(_WIDE)
_OF_MEDIAN = 1.25  # the deviation of a median beside that of a mean
_DEVIATIONS = 3.0  # with two rounds in each run 3 of 100 that did not change are called worse; with three, 1
LEAST = 0.05  # of the former median


def allowance(former: Sequence[float], newer: Sequence[float]) -> float | None:
    """By how much the newer median may differ from the former; None where both have one round, which tells nothing."""
    runs = [values for values in (former, newer) if len(values) > 1]
    if not runs:
        return None
    deviation = sum(max(run) - min(run) for run in runs) / sum(_WIDE[min(len(run), _MOST)] for run in runs)
    of_both = _OF_MEDIAN * deviation * math.sqrt(1 / len(former) + 1 / len(newer))
    return max(_DEVIATIONS * of_both, LEAST * abs(statistics.median(former)))

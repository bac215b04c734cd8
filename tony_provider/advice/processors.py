"""How many vcores a container should be given for what its tasks have used."""

from __future__ import annotations

import math

from tony_provider.runtime.protocol.job_figures import TypeUse

_HEAD_ROOM = 1.5  # times the mean
_NOISE = 0.05  # of a core: one that is busy all the time may measure so much more
_FULL = 0.9  # of what it was given: it may have wanted more


def needed(use: TypeUse, asked: int) -> int:
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

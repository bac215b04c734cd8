"""How long a YARN cluster may take until the next application master of a job runs, from its own settings."""

from __future__ import annotations

import re

from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.rest import YarnRest

# What YARN waits for before it gives a silent master up, or a silent node with the master on it: with its own defaults.
_EXPIRIES = {
    "yarn.am.liveness-monitor.expiry-interval-ms": 900.0,
    "yarn.nm.liveness-monitor.expiry-interval-ms": 600.0,
}
_NEXT_MASTER = 300.0  # seconds: a container for it in a busy queue, its files, its start, a ResourceManager's failover
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def master_lost_after(rest: YarnRest) -> float:
    """Seconds after which no application master can follow one that died, by the cluster's settings.

    Where the cluster hides its configuration, YARN's defaults are taken.
    """
    return max(_seconds(rest, name, default) for name, default in _EXPIRIES.items()) + _NEXT_MASTER


def _seconds(rest: YarnRest, name: str, default: float) -> float:
    try:
        value = rest.setting(name)
    except ConfigurationHidden:
        return default
    return default if value is None else parse_seconds(value, default)


def parse_seconds(text: str, default: float) -> float:
    """The seconds of a time that Hadoop has in milliseconds: ``600000``, or ``10m``; ``default`` for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] and match[2] not in _UNITS):
        return default
    return int(match[1]) * _UNITS[match[2] or "ms"]

"""The limit on this process's open files: each executor's stream is one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_OTHERS = 1024  # listening, the store, the ResourceManager, nodes, visitors
_NEWCOMERS = 1024  # connections to the executors' port that have proven nothing yet, strangers' among them
_MOST_RESERVED = 2  # of a small limit one part in so many is for the others


def allow(tasks: int) -> None:
    """Raise the limit to what so many executors need, as far as the node lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tasks + _NEWCOMERS + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < tasks + _OTHERS:
        log.warning(
            "%d tasks need %d open files, and this node allows %d: raise its limit (ulimit -n)", tasks, wanted, allowed
        )


def for_executors(tasks: int) -> int:
    """How many connections their port may have under the present limit: enough stays for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tasks + _NEWCOMERS
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, soft - min(_OTHERS, soft // _MOST_RESERVED))

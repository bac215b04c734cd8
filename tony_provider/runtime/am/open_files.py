"""The limit on this process's open files: each executor's stream is one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_OTHERS = 1024  # listening, the store, the ResourceManager, nodes, visitors


def allow(tasks: int) -> None:
    """Raise the limit to what so many executors need, as far as the node lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tasks + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning(
            "%d tasks need %d open files, and this node allows %d: raise its limit (ulimit -n)", tasks, wanted, allowed
        )

"""`python -m tests.secure.reader CONNECTION SLUG DIGEST APPLICATION ACT`: what a worker of Airflow's reads of a job.

Prints how it went, and the most memory that it took, as JSON. In a process of its own: it may not survive it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook

ACTS: dict[str, Callable[[TonyHook, Identity, str], object]] = {
    "status": lambda hook, identity, application: hook.job_status(identity, application),
    "returned": lambda hook, identity, application: hook.job(application, identity).returned(),
    "chain": lambda hook, identity, application: hook.job(application, identity).owned_chain(),
}


def main() -> None:
    connection, slug, digest, application, act = sys.argv[1:]
    os.environ["AIRFLOW_CONN_TONY_READER"] = connection
    with TonyHook("tony_reader") as hook:
        before, begun = _peak(), time.monotonic()
        try:
            hook.get_conn()
            before = _peak()
            outcome = f"read {str(ACTS[act](hook, Identity(slug, digest), application))[:80]}"
        except Exception as error:  # noqa: BLE001 - which it is, is what is asked
            outcome = f"{type(error).__name__}: {error}"
        facts = {"outcome": outcome[:300], "grown": _peak() - before, "seconds": time.monotonic() - begun}
    print(json.dumps(facts))


def _peak() -> int:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()

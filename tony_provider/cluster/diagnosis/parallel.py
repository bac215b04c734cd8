"""Running checks at the same time, with an end: what takes too long is left alone and called a problem."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from tony_provider.cluster.diagnosis.finding import Finding, problem
from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.storage.errors import StorageError

_NAME = "tony-check"  # of their threads


@attrs.frozen
class Check:
    """One check of a diagnosis: what it looks at, and the function that does it."""

    what: str
    run: Callable[[], Iterable[Finding]]


def in_time(checks: Sequence[Check], seconds: float) -> list[Finding]:
    """Run all checks at once; returns their findings, in the checks' order, after ``seconds`` at most.

    Names and tickets are looked up by libraries that know no deadline: hence threads that nobody waits for.
    """
    found: dict[int, list[Finding]] = {}

    def act(index: int, check: Check) -> None:
        found[index] = _findings(check)

    threads = [
        threading.Thread(target=act, args=(index, check), name=_NAME, daemon=True) for index, check in enumerate(checks)
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [
        finding
        for index, check in enumerate(checks)
        for finding in found.get(index, [_unfinished(check.what, seconds)])
    ]


def let_end(seconds: float) -> None:
    """Give checks that were cut off so long to tidy up, before the process ends and they with it."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(0.0, deadline - time.monotonic()))


def _findings(check: Check) -> list[Finding]:
    try:
        return list(check.run())
    except (ClusterError, StorageError) as error:
        return [problem(check.what, str(error), "")]
    except Exception as error:  # noqa: BLE001 - a check that fails must not hide what the others found
        return [problem(check.what, f"the check itself failed: {error!r}", "please report this")]


def _unfinished(what: str, seconds: float) -> Finding:
    return problem(
        what,
        f"no answer within {seconds:.2g} s",
        "something on the way is silent (a firewall, a name server, a KDC), or the cluster is overloaded",
    )

"""Repeated failures: how often a program has failed in the same way without progress in between."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Optional

import attrs

from tony_provider.runtime import shell
from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.restarts.failures import KILL_SIGNALS
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.runtime.spec.model import RestartPolicy

_VARYING = re.compile(
    "|".join(
        [
            # With the directories before it, which differ between nodes and between disks of a node.
            r"(?:/[^\s'\":,()]*)?\b(?:application|appattempt|container)(?:_e\d+)?(?:_\d+)+",
            r"\x1b\[[0-9;]*[A-Za-z]",  # colours
            r"(?m:^[IWEF]\d{4} [\d:.]+\s+\d+)",  # glog: severity, date, time, thread
            r"\d{4}[-/]\d\d[-/]\d\d",
            r"\b\d{1,2}:\d\d:\d\d\b",
            r"0x[0-9a-f]+",
            r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b",
            r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",  # addresses
            r"/tmp/[^\s'\":,)]+|\btmp[a-z0-9_]{8}\b",  # noqa: S108 - paths of other programs
            r"\[\d+\]:|==\d+==",  # a process in a log line
            r"\b(?:pid|tid|thread|process|rank|task|replica|chief|worker|ps|generation|attempt|start|try)[\s=:#(\[_-]*\d+",
            r"\d+[.,]\d+",  # seconds, losses
            r"\d{5,}",  # ports, processes, times
        ]
    ),
    re.IGNORECASE,
)


@attrs.frozen
class SeenFailure:
    """The time and the recognised kind of a program's failure."""

    time: float
    what: str  # the same for the same failure
    step: Optional[int] = None  # the newest that the processes had reported; None without any


class RepeatedFailures:
    """The failures since the last progress, see progress.py.

    Times are the session's, in seconds.
    """

    def __init__(self, policy: RestartPolicy, seen: Iterable[SeenFailure] = ()) -> None:
        """``seen``: oldest first."""
        self._policy = policy
        self.seen = list(seen)

    def add(self, failure: Failure, task_type: str, step: Optional[int], now: float) -> int:
        """Count a failure after a reported step. Return the number of equal ones within the window, with this one.

        Failures after different steps are not equal: they are not errors of the program, but of its network, for
        example. Return 0 if the program has not caused the failure.
        """
        self.seen = [each for each in self.seen if now - each.time < self._policy.window]
        what = recognise(failure, task_type)
        if what is None:
            return 0
        self.seen.append(SeenFailure(now, what, step))
        return sum(each.what == what and (None in (step, each.step) or step == each.step) for each in self.seen)

    def forget(self) -> None:
        """Forget all failures, because the program has made progress."""
        self.seen = []


def recognise(failure: Failure, task_type: str) -> Optional[str]:
    """Return a text that is the same whenever a task of this type fails in this way.

    Return None if the program has not caused the failure. The text names the type and not the task, because in a gang
    that runs one program, each task may be the first to fail.
    """
    if failure.kind is not FailureKind.USER:
        return None
    signal = failure.signal or shell.killed_by(failure.exit_code or 0)
    if signal in KILL_SIGNALS:
        return None
    how = f"signal {failure.signal}" if failure.signal else f"exit {failure.exit_code}"
    _, _, output = failure.message.partition("\n")
    digest = hashlib.sha256(essence(output).encode("utf-8", "replace")).hexdigest()
    return f"{task_type} {how} {digest[:16]}"


def essence(output: str) -> str:
    """Return a program's last traceback, or its last lines, without parts that vary between runs."""
    return _VARYING.sub("#", words.last_traceback(output))

"""The decision whether a failed task may start again, and when."""

from __future__ import annotations

from typing import Union

import attrs

from tony_provider.runtime.am.session.restarts.failures import NOT_RUNNABLE
from tony_provider.runtime.am.session.restarts.restart_budget import RestartBudget
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.runtime.quantities import count
from tony_provider.runtime.spec.model import RestartPolicy, RestartScope

FREE_MOVES = 3
"""Restarts on other nodes, because a node lacked something, that the budget does not pay for."""


@attrs.frozen
class RestartAt:
    """The decision to start again."""

    delay: float = 0.0  # seconds to wait before


@attrs.frozen
class NoRestart:
    """The decision not to start again."""

    why: str = ""  # in addition to the failure's message
    permanent: bool = False  # another application would fail in the same way
    repeated: bool = False  # because the same failure was seen too often


Decision = Union[RestartAt, NoRestart]


def decide(
    failure: Failure,
    scope: RestartScope,
    policy: RestartPolicy,
    budget: RestartBudget,
    now: float,
    *,
    times: int = 1,
    moves: int = 0,
) -> Decision:
    """Decide whether a failed task with this scope restarts. A restart is taken from the budget.

    ``times``: number of the same failures without progress in between, see RepeatedFailures. ``moves``: number of
    times without progress in between that a task has left a node which lacked something.
    """
    permanent = is_permanent(failure, policy)
    if scope is RestartScope.NEVER:
        return NoRestart(permanent=permanent)
    if permanent:
        return NoRestart(_why_permanent(failure), permanent=True)
    if failure.kind is FailureKind.UPLOAD:  # the training is complete; another application may upload its files
        return NoRestart()
    if failure.kind is FailureKind.PREEMPTED:  # caused by the cluster, not by the job
        return RestartAt()
    if failure.kind is FailureKind.NODE and moves <= FREE_MOVES:
        return RestartAt()
    if times > policy.same_failure:
        return NoRestart(
            f"the same failure {times} times, without progress in between (restart.same_failure)",
            repeated=True,
        )
    delay = budget.spend(now)
    if delay is not None:
        return RestartAt(delay)
    restarts = count(policy.budget, "restart")
    return NoRestart(f"given up after {restarts} without progress (restart.budget)" if policy.budget else "")


def is_permanent(failure: Failure, policy: RestartPolicy) -> bool:
    """Return whether the same job would fail again: its command cannot be run, or its exit code is permanent.

    ``permanent_exit_codes`` do not apply to exit codes of our executors.
    """
    if failure.kind is FailureKind.LAUNCH:
        return failure.exit_code in NOT_RUNNABLE
    return failure.kind in (FailureKind.USER, FailureKind.NODE) and failure.exit_code in policy.permanent_exit_codes


def _why_permanent(failure: Failure) -> str:
    """Return the reason, unless the failure's message already contains it."""
    if failure.kind is FailureKind.LAUNCH:
        return ""
    return "this exit code is permanent (restart.permanent_exit_codes)"

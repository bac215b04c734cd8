"""The decision whether a failed task may start again, and when."""

from __future__ import annotations

from typing import Optional, Union

import attrs

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.restarts.failures import NOT_RUNNABLE
from tony_provider.runtime.am.session.restarts.restart_budget import RestartBudget
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.runtime.spec.model import RestartPolicy, RestartScope


@attrs.frozen
class RestartAt:
    """The decision to start again."""

    delay: float = 0.0  # seconds to wait before


@attrs.frozen
class NoRestart:
    """The decision not to start again."""

    why: str = ""  # beyond what the failure says; empty: that says it all


Decision = Union[RestartAt, NoRestart]


def decide(
    failure: Failure, scope: RestartScope, policy: RestartPolicy, budget: RestartBudget, now: float, *, times: int = 1
) -> Decision:
    """Decide what comes of the failure of a task with this scope; a restart is taken from the budget.

    ``times``: how often the same failure was seen without a step or a newer checkpoint in between, see
    RepeatedFailures.
    """
    if scope is RestartScope.NEVER:
        return NoRestart()
    why = _permanent(failure, policy)
    if why is not None:
        return NoRestart(why)
    if failure.kind is FailureKind.PREEMPTED:  # the cluster's doing: it says nothing about the job
        return RestartAt()
    if times > policy.same_failure:
        return NoRestart(
            f"the same failure {times} times, without a step or a newer checkpoint in between (restart.same_failure)"
        )
    delay = budget.spend(now)
    if delay is not None:
        return RestartAt(delay)
    restarts = words.count(policy.budget, "restart")
    return NoRestart(f"given up after {restarts} without a newer checkpoint (restart.budget)" if policy.budget else "")


def _permanent(failure: Failure, policy: RestartPolicy) -> Optional[str]:
    """Why no restart would mend it; None when one might."""
    if failure.kind is FailureKind.LAUNCH and failure.exit_code in NOT_RUNNABLE:
        return ""
    if failure.kind is FailureKind.UPLOAD:  # the training itself is done
        return ""
    if failure.kind is FailureKind.USER and failure.exit_code in policy.permanent_exit_codes:
        return "this exit code is permanent (restart.permanent_exit_codes)"
    return None

"""Handle lost containers and their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime import shell
from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.am.session.actions import ReleaseContainers
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.restarts import failures
from tony_provider.runtime.am.session.restarts.finished_tasks import FinishedTasks
from tony_provider.runtime.am.session.restarts.restart_decision import is_permanent
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.type_sizes import TypeSizes
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.spec.model import Role

MOST_REPLACEMENTS = 3  # containers of a task that may be lost in a row before its user process has run

_IN_A_ROW = (
    f"{MOST_REPLACEMENTS} more were lost before it without the user process having run: "
    "the nodes, or what is copied to them, need a look"
)
_NODE_TROUBLE = (
    ExitReason.LOST,
    ExitReason.DISKS_FAILED,
    ExitReason.PREEMPTED,
    ExitReason.KILLED_BY_CLUSTER,
    ExitReason.MADE_ROOM,
)
"""Reasons that are independent of the job. Another container may succeed."""
_NODES_FAULT = (FailureKind.CONTAINER_LOST, FailureKind.LAUNCH, FailureKind.REGISTRATION_TIMEOUT)


class ContainerFailures:
    """The part of the session that handles lost containers and silent executors.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        sizes: TypeSizes,
        containers: Containers,
        groups: RestartGroups,
        restarts: Restarts,
        finished: FinishedTasks,
    ) -> None:
        self._state = state
        self._sizes = sizes
        self._containers = containers
        self._groups = groups
        self._restarts = restarts
        self._finished = finished

    def completed(self, container_id: str, exit: ContainerExit, diagnostics: str, now: float) -> None:
        """Handle the end of a container, as the cluster reports it."""
        task = self._containers.ended(container_id)
        if task is None:
            return
        self._state.note("container_completed", f"exit status {exit.status}", task)
        failure = failures.of_container(task, exit, diagnostics)
        better = failure if exit.exit_code is None else None
        is_killed = shell.killed_by(exit.exit_code or 0) in failures.KILL_SIGNALS  # by the node, or by a person
        chance = exit.reason in _NODE_TROUBLE or failure.kind is FailureKind.CONTAINER_LOST or is_killed
        self._lost(task, failure, now, again=chance, chance=chance, better=better)

    def not_launched(self, container_id: str, reason: str, now: float) -> None:
        """Handle a node's refusal to start a container."""
        task = self._containers.ended(container_id)  # nothing runs in it that could end
        if task is None:
            return
        if not task.told_to_stop:
            self._state.emit(ReleaseContainers((container_id,)))
        self._lost(task, failures.of_launch(task, reason), now)

    def not_registered(self, tasks: Sequence[Task], now: float) -> None:
        """Handle executors that have not registered in time."""
        needed = [task for task in tasks if task.role is not Role.SIDECAR]
        for task in tasks:
            late = needed if task in needed else [task]
            failure = failures.of_registration(late, self._state.job.timeouts.registration)
            self._take(task, failure, now, again=False)

    def silent(self, task: Task, seconds: float, now: float) -> None:
        """Handle an executor that has sent nothing for ``seconds``."""
        self._take(task, failures.of_silence(task, seconds), now)

    def not_stopped(self, task: Task, now: float) -> None:
        """Handle an executor that has not reported the end of a user process that it had to stop."""
        self._take(task, failures.of_stop(task), now)

    def _take(self, task: Task, failure: Failure, now: float, *, again: bool = True) -> None:
        self._containers.take(task, now)
        self._lost(task, failure, now, again=again, chance=again, better=failure)

    def _lost(
        self,
        task: Task,
        failure: Failure,
        now: float,
        *,
        again: bool = True,
        chance: bool = False,
        better: Optional[Failure] = None,
    ) -> None:
        """Handle a lost container.

        ``again``: another container may succeed, even before the job has run. ``chance``: any long-lived container may
        be lost in this way. ``better``: a failure that explains more than a doubtful failure of the task.
        """
        if failure.kind in _NODES_FAULT and task.node and not task.told_to_stop:
            self._containers.blame(task.node)
        if task.told_to_stop:
            if not task.ended:
                task.enter(TaskState.STOPPED)
            return
        if self._groups.of(task).root_cause.settled(task, better) and better:
            self._restarts.know_failure(task, better)
        if self._state.phase is JobState.RECOVERING:
            task.failure, task.process = failure, None  # other tasks may also be missing
            return
        preparing = self._groups.preparing(task)
        process = task.process
        if process and process.runs and (preparing is None or preparing.root_cause.pending):
            self._restarts.trouble(task, failure, now)  # it may be the cause of the present restart
        if process:
            process.settled = True
        if preparing or task.state is not TaskState.SUCCEEDED:
            self._replace(task, failure, now, again=again, chance=chance)
        else:
            self._finished.look_at(task, now)

    def _replace(self, task: Task, failure: Failure, now: float, *, again: bool, chance: bool) -> None:
        # While the job waits for other containers, any number of such ends is independent of the job.
        taken_back = failure.kind is FailureKind.PREEMPTED or (chance and self._containers.gathers(task))
        if failure.kind is FailureKind.PREEMPTED and self._sizes.may_go(task):
            self._sizes.vacate(task)
            return
        too_many = task.replaced >= MOST_REPLACEMENTS
        if taken_back or (not too_many and (again or self._state.generation.number)):
            self._containers.replace(task, now, failure.message, counted=not taken_back)
        elif task.absent and self._sizes.may_go(task):
            self._sizes.vacate(task)
        elif task.absent:
            task.enter(TaskState.LOST)
            self._state.note("given_up", "no more containers are asked for: the gang does without it", task)
        else:
            why, permanent = _IN_A_ROW if too_many else "", is_permanent(failure, self._state.job.restart)
            self._restarts.give_up(task, failures.given_up(failure, why, permanent=permanent), now)

"""Reports of executors and lost containers, and their consequences for tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import ReleaseContainers
from tony_provider.runtime.am.session.session_state import (
    Heartbeat,
    Part,
    ProcessEnd,
    ProcessState,
    SessionContext,
    Settlement,
    Task,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import Role
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState


class ExecutorReports(Part):
    """Session component that handles messages from executors.

    The caller has checked that the message is from the task's present container. Times are on the session's clock, in
    seconds.
    """

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._crowded: set[str] = set()  # nodes on which full disks have lost output of tasks

    def registered(self, task: Task, host: str, ports: Mapping[str, int], start: int, now: float) -> None:
        """Handle an executor's registration. ``start`` is the newest start that the executor knows."""
        task.connected, task.heard_at = True, now
        if not task.ended:
            task.first_symptom_at = None
        if task.ending:
            self._completion.stop(task, now, "the job has ended")
        elif task.state is TaskState.STARTING:
            task.enter(TaskState.REGISTERED)
            task.deadline, task.host, task.ports = None, host, dict(ports)
            self._state.note("registered", f"on {host}, ports {dict(ports)}", task)
            self._restarts.registered(task)
        else:
            self._starts.repeat_orders(task, start)

    def disconnected(self, task: Task, now: float) -> None:
        """Handle the loss of an executor's stream. The executor may reconnect."""
        task.connected = False
        if not task.ended and task.first_symptom_at is None:
            task.first_symptom_at = now

    def heartbeat(self, task: Task, beat: Heartbeat, now: float) -> None:
        task.heard_at = now
        task.values, task.activity = beat.values, beat.activity
        task.parameters = beat.parameters or task.parameters
        task.upload_problem, task.notices, task.further = beat.upload_problem, beat.notices, beat.further
        self._check_output(task, beat.output_problem)
        if beat.ready and task.process:
            self._check_ready(task, task.process)
        if beat.progress:
            task.progress = beat.progress
            if task.process:
                task.process.moved(beat.progress.step, now)
                self._check_step(task, task.process, beat.progress.step)

    def _check_ready(self, task: Task, process: ProcessState) -> None:
        """Record that the process is ready. Ignore reports before its start, which are about the former process."""
        if process.is_running and not process.ready:
            process.ready = True
            self._state.note("ready", "its readiness probe has succeeded", task)

    def process_started(self, task: Task, start: int, now: float) -> None:
        process = task.process
        if process is None or process.start != start or not process.runs or process.started_at is not None:
            return
        task.heard_at = process.started_at = process.moved_at = now
        task.replaced = 0
        if task.state is TaskState.REGISTERED and process.stop_by is None:
            task.enter(TaskState.RUNNING)
        self._state.note("started", f"start {start} of its user process, in generation {process.generation}", task)

    def process_ended(self, task: Task, end: ProcessEnd, now: float) -> None:
        process = task.process
        if process is None or process.start != end.start or not process.runs:
            return
        if end.progress:
            process.moved(end.progress.step, now)
            self._check_step(task, process, end.progress.step)
        task.heard_at, process.end = now, end
        task.progress, task.parameters = end.progress or task.progress, end.parameters or task.parameters
        self._check_output(task, end.output_problem)
        self._state.note("ended", end.in_words, task)
        if self._state.phase is not JobState.RECOVERING:  # a recovery handles the end once all executors are back
            self.look_at_end(task, process, end, now)

    def _check_step(self, task: Task, process: ProcessState, step: int) -> None:
        """Record a step of a running process. Ignore steps before its start and after a stop order as outdated."""
        if step and process.is_running and process.stop_by is None:
            if not process.stepped and task is self._state.leader:
                self._compare(task, process, step)
            self._restarts.stepped(task, step)

    def _compare(self, task: Task, process: ProcessState, first_step: int) -> None:
        """Warn if the program's first step shows that the program has not loaded the checkpoint."""
        order = process.order
        resume = order.resume if order else self._state.generation.resume
        if resume is not None and not (order and order.keep_checkpoints) and resume.was_not_loaded(first_step):
            warning = (
                f"the job resumed from {resume.label}, but {task.name} continues at step {first_step}: its program may "
                "not have loaded the checkpoint (see TONY_RESUME_FROM)"
            )
            self._state.note("not_resumed", warning, task)
            self._state.warnings.append(warning)

    def look_at_end(self, task: Task, process: ProcessState, end: ProcessEnd, now: float) -> None:
        """Handle the consequences of a user process's end."""
        if end.succeeded and task.role is not Role.PS:
            if not task.ended:
                task.enter(TaskState.SUCCEEDED)
        elif task.ending:
            if not task.ended:
                task.enter(TaskState.STOPPED)
        elif process.stop_by is not None:
            task.enter(TaskState.REGISTERED)
        elif end.stopped and process.order is None:
            # The former master had stopped the process for a restart, and has already counted this restart.
            task.enter(TaskState.REGISTERED)
            self._restarts.restart(self._groups.of(task), "a former application master had stopped it", now)
        else:
            self._failed(task, process, end, now)

    def settled(self, task: Task, settlement: Settlement, now: float) -> None:
        """Handle the report that the last checkpoint copies of a user process have ended."""
        process = task.process
        if process is None or process.start != settlement.start or process.settled:
            return
        if process.end is None and process.stop_by is None:
            return  # a valid settlement follows the end of the process, or an order to stop it
        process.settled, process.not_copied = True, settlement.problem
        task.notices, task.unstored = settlement.notices or task.notices, settlement.unstored
        self._starts.replace_container(task, now, "the container needs replacement")
        if settlement.problem:
            warning = f"the newest checkpoint could not be stored: {settlement.problem}"
            self._state.note("not_copied", warning, task)
        self._finished.check(task, now)

    def _check_output(self, task: Task, problem: str) -> None:
        """Report lost lines: once per container in the event log, and once per node in the job's warnings."""
        if not problem or task.output_problem:
            return
        task.output_problem = problem
        self._state.note("output_lost", problem, task)
        if task.node and task.node not in self._crowded:
            self._crowded.add(task.node)
            self._state.warnings.append(f"output of {task.name} on {task.node} is not complete: {problem}")

    def _failed(self, task: Task, process: ProcessState, end: ProcessEnd, now: float) -> None:
        if end.succeeded:
            self._context.early_ends.ended(task, process, now)
            return
        if end.not_kept and not end.stopped:
            self._restarts.record_failure(task, failures.of_upload(task, end), now)
            return
        # YARN may have killed the whole container. It reports the reason a little later, so the decision waits.
        killed = end.signal in failures.KILL_SIGNALS or contract.killing_signal(end.exit_code) in failures.KILL_SIGNALS
        failure = failures.of_process(task, end, started=process.started_at is not None)
        doubtful = not end.out_of_memory and (end.stopped or killed)
        if doubtful or not self._context.early_ends.explains(task, failure, now):
            self._restarts.record_failure(task, failure, now, doubtful=doubtful)


MOST_REPLACEMENTS = 3  # limit of consecutive containers of a task lost before its user process ran

_IN_A_ROW = (
    f"the {MOST_REPLACEMENTS} previous containers were also lost before the user process ran: "
    "check the nodes, and the files that are copied to them"
)
_INDEPENDENT_OF_JOB = (
    ExitReason.LOST,
    ExitReason.DISKS_FAILED,
    ExitReason.PREEMPTED,
    ExitReason.KILLED_BY_CLUSTER,
    ExitReason.MADE_ROOM,
)
"""Reasons that are independent of the job. Another container may succeed."""
_NODES_FAULT = (FailureKind.CONTAINER_LOST, FailureKind.LAUNCH, FailureKind.REGISTRATION_TIMEOUT)


class ContainerFailures(Part):
    """Session component that handles lost containers and silent executors."""

    def completed(self, container_id: str, exit: ContainerExit, diagnostics: str, now: float) -> None:
        """Handle the end of a container, as the cluster reports it."""
        task = self._containers.ended(container_id)
        if task is None:
            return
        self._state.note("container_completed", f"exit status {exit.status}", task)
        failure = failures.of_container(task, exit, diagnostics)
        better = failure if exit.exit_code is None else None
        is_killed = (
            contract.killing_signal(exit.exit_code or 0) in failures.KILL_SIGNALS
        )  # killed by the node or by a user
        chance = exit.reason in _INDEPENDENT_OF_JOB or failure.kind is FailureKind.CONTAINER_LOST or is_killed
        again = chance or exit.exit_code == contract.EXIT_BAD_CONTAINER  # such as a changed file in the node's cache
        self._lost(task, failure, now, again=again, chance=chance, better=better)

    def not_launched(self, container_id: str, reason: str, now: float) -> None:
        """Handle a node's refusal to start a container."""
        task = self._containers.ended(container_id)  # no process runs in it, so no later event reports its end
        if task is None:
            return
        if not task.ending:
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

        ``again``: another container may succeed, even if the job has never run. ``chance``: the loss is probably
        independent of the job. ``better``: a failure with the real reason, which replaces the task's doubtful failure.
        """
        if failure.kind in _NODES_FAULT and task.node and not task.ending:
            self._containers.blame(task.node)
        if task.ending:
            if not task.ended:
                task.enter(TaskState.STOPPED)
            return
        if self._groups.of(task).root_cause.settled(task, better) and better:
            self._restarts.log_failure(task, better)
        if self._state.phase is JobState.RECOVERING:
            task.failure, task.process = failure, None  # handled with all other losses when the recovery is complete
            return
        preparing = self._groups.preparing(task)
        process = task.process
        if process and process.runs and (preparing is None or preparing.root_cause.pending):
            self._restarts.record_failure(task, failure, now)  # it may be the cause of the present restart
        if process:
            process.settled = True
        if preparing or task.state is not TaskState.SUCCEEDED:
            self._replace(task, failure, now, again=again, chance=chance)
        else:
            self._finished.check(task, now)

    def _replace(self, task: Task, failure: Failure, now: float, *, again: bool, chance: bool) -> None:
        # While the gang waits for containers, a loss by chance does not count, however often it happens.
        taken_back = failure.kind is FailureKind.PREEMPTED or (chance and self._containers.gathers(task))
        if failure.kind is FailureKind.PREEMPTED and self._sizes.may_go(task):
            self._sizes.stop_requesting(task)
            return
        too_many = task.replaced >= MOST_REPLACEMENTS
        if taken_back or (not too_many and (again or self._state.generation.number)):
            self._containers.replace(task, now, failure.message, counted=not taken_back)
        elif task.left_out and self._sizes.may_go(task):
            self._sizes.stop_requesting(task)
        elif task.left_out:
            task.enter(TaskState.LOST)
            self._state.note("given_up", "no more containers are requested: the gang continues without the task", task)
        else:
            why, is_only_node = _IN_A_ROW if too_many else "", self._state.nodes_in_cluster == 1
            permanent = is_only_node and failure.exit_code in failures.NOT_RUNNABLE
            self._restarts.give_up(task, failures.given_up(failure, why, permanent=permanent), now)

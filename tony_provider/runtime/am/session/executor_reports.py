"""Reports of executors, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime import shell
from tony_provider.runtime.am.session.job_completion import JobCompletion
from tony_provider.runtime.am.session.restarts import failures
from tony_provider.runtime.am.session.restarts.early_ends import EarlyEnds
from tony_provider.runtime.am.session.restarts.finished_tasks import FinishedTasks
from tony_provider.runtime.am.session.restarts.process_starts import ProcessStarts
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.process_state import ProcessEnd, ProcessState, Settlement
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Heartbeat, Task
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.spec.model import Role


class ExecutorReports:
    """The part of the session that handles what executors say.

    Each ``task`` is one whose executor may speak. Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        completion: JobCompletion,
        groups: RestartGroups,
        starts: ProcessStarts,
        restarts: Restarts,
        early_ends: EarlyEnds,
        finished: FinishedTasks,
    ) -> None:
        self._state = state
        self._completion = completion
        self._early_ends = early_ends
        self._finished = finished
        self._groups = groups
        self._starts = starts
        self._restarts = restarts
        self._crowded: set[str] = set()  # nodes whose disks have cost a task lines of its output

    def registered(self, task: Task, host: str, ports: Mapping[str, int], start: int, now: float) -> None:
        """Handle an executor's registration. ``start`` is that of the newest rendezvous that reached it."""
        task.connected, task.heard_at = True, now
        if not task.ended:
            task.trouble_at = None
        if task.told_to_stop:
            self._completion.stop(task, now, "the job has ended")
        elif task.state is TaskState.STARTING:
            task.enter(TaskState.REGISTERED)
            task.deadline, task.host, task.ports = None, host, dict(ports)
            self._state.note("registered", f"on {host}, ports {dict(ports)}", task)
            self._restarts.has_come(task)
        else:
            self._starts.say_again(task, start)

    def disconnected(self, task: Task, now: float) -> None:
        """An executor's stream is down; it may come back."""
        task.connected = False
        if not task.ended and task.trouble_at is None:
            task.trouble_at = now

    def heartbeat(self, task: Task, beat: Heartbeat, now: float) -> None:
        task.heard_at = now
        task.rss_bytes, task.cpu_percent, task.activity = beat.rss_bytes, beat.cpu_percent, beat.activity
        task.store_trouble, task.notices, task.further = beat.trouble, beat.notices, beat.further
        self._look_at_output(task, beat.output_problem)
        if beat.ready and task.process:
            self._look_at_ready(task, task.process)
        if beat.progress:
            task.progress = beat.progress
            if task.process:
                task.process.moved(beat.progress.step, now)
                self._look_at_step(task, task.process, beat.progress.step)

    def _look_at_ready(self, task: Task, process: ProcessState) -> None:
        """Before the process has started, it is the former one that was ready."""
        if process.started_at is not None and process.runs and not process.ready:
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
        self._state.note("started", f"user process {start}, of generation {process.generation}", task)

    def process_ended(self, task: Task, end: ProcessEnd, now: float) -> None:
        process = task.process
        if process is None or process.start != end.start or not process.runs:
            return
        if end.progress:
            process.moved(end.progress.step, now)
            self._look_at_step(task, process, end.progress.step)
        task.heard_at, process.end = now, end
        task.progress = end.progress or task.progress
        self._look_at_output(task, end.output_problem)
        self._state.note("ended", end.in_words, task)
        if self._state.phase is not JobState.RECOVERING:  # then it is looked at once everybody is back
            self.look_at_end(task, process, end, now)

    def _look_at_step(self, task: Task, process: ProcessState, step: int) -> None:
        """Before the process has started, and once it is to stop, it is a step from before the last failure."""
        if step and process.started_at is not None and process.stop_by is None and process.runs:
            if not process.stepped and task is self._state.leader:
                self._compare(task, process, step)
            self._restarts.stepped(task, step)

    def _compare(self, task: Task, process: ProcessState, first_step: int) -> None:
        """Warn if the program has not resumed from the checkpoint that the log names."""
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
        """Draw the consequences of a user process's end."""
        if end.succeeded and task.role is not Role.PS:
            if not task.ended:
                task.enter(TaskState.SUCCEEDED)
        elif task.told_to_stop:
            if not task.ended:
                task.enter(TaskState.STOPPED)
        elif process.stop_by is not None:
            task.enter(TaskState.REGISTERED)
        elif end.stopped and process.order is None:
            # Its former master died between two generations; what for, it knew and has counted.
            task.enter(TaskState.REGISTERED)
            self._restarts.again(self._groups.of(task), "a former application master had stopped it", now)
        else:
            self._failed(task, process, end, now)

    def settled(self, task: Task, settlement: Settlement, now: float) -> None:
        """The last copies of checkpoints after a process are over."""
        process = task.process
        if process is None or process.start != settlement.start or process.settled:
            return
        if process.end is None and process.stop_by is None:
            return  # its end comes first
        process.settled, process.not_copied = True, settlement.problem
        task.notices, task.unstored = settlement.notices or task.notices, settlement.unstored
        self._starts.renew(task, now, "its container is not fit")
        if settlement.problem:
            warning = f"the newest checkpoint could not be stored: {settlement.problem}"
            self._state.note("not_copied", warning, task)
        self._finished.look_at(task, now)

    def _look_at_output(self, task: Task, problem: str) -> None:
        """Say that lines are lost: once for a container, and among the job's warnings once for a node."""
        if not problem or task.output_problem:
            return
        task.output_problem = problem
        self._state.note("output_lost", problem, task)
        if task.node and task.node not in self._crowded:
            self._crowded.add(task.node)
            self._state.warnings.append(f"output of {task.name} on {task.node} is not complete: {problem}")

    def _failed(self, task: Task, process: ProcessState, end: ProcessEnd, now: float) -> None:
        if end.succeeded:
            self._early_ends.ended(task, process, now)
            return
        if end.not_kept and not end.stopped:
            self._restarts.trouble(task, failures.of_upload(task, end), now)
            return
        # YARN kills all processes of a container at once: its word on why comes a little later.
        killed = end.signal in failures.KILL_SIGNALS or shell.killed_by(end.exit_code) in failures.KILL_SIGNALS
        failure = failures.of_process(task, end, started=process.started_at is not None)
        doubtful = not end.out_of_memory and (end.stopped or killed)
        if doubtful or not self._early_ends.explains(task, failure, now):
            self._restarts.trouble(task, failure, now, doubtful=doubtful)

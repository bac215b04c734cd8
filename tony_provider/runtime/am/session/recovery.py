"""Recovery of a running job by a new application master, and the history that it reads from the event log.

The event log contains only counters and decisions (see History). The running tasks are known from the cluster's list of
containers and from the registrations of executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.restart_policy import (
    GroupProgress,
    RepeatedFailures,
    RestartBudget,
    SeenFailure,
)
from tony_provider.runtime.am.session.session_state import (
    Generation,
    Part,
    ProcessState,
    SessionContext,
    Sizing,
    Task,
    TaskOutcome,
)
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol.status import ExportedModel, ExportRequest, JobState, TaskState

WAIT_FOR_NEXT = 30.0  # seconds to wait for another executor after each registration
MOST_WAIT = 60.0  # seconds to wait for the first executor
REPLAY = 0.5  # seconds for the reports that an executor repeats after its registration


class Recovery(Part):
    """Session component that waits for the executors of a former application master and adopts them."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._listed: dict[str, Container] = {}  # containers whose executors have not registered yet
        self._until = 0.0
        self._replayed_by = 0.0

    def begin(self, containers: Sequence[Container], history: History, now: float) -> None:
        self._state.enter(JobState.RECOVERING)
        self._listed = {container.id: container for container in containers}
        self._until = now + MOST_WAIT
        self._remember(history)
        total = count(len(containers), "container")
        self._state.note("recovering", f"a new application master takes over {total} of generation {self._newest}")

    def leave_to_end(self, now: float) -> None:
        """Wait for the listed containers to end, including their grace period and last checkpoint copies.

        The former master has already ordered all tasks to stop.
        """
        state = self._state
        seconds = state.job.timeouts.grace + state.last_copies
        for container_id in self._listed:
            self._containers.shutdowns.wait_for(container_id, now, seconds)
        self._listed.clear()

    @property
    def waiting_for(self) -> int:
        """The number of executors that have not registered again yet."""
        return len(self._listed)

    def waits_for(self, container_id: str) -> bool:
        """Return whether the executor of this container has not registered again yet."""
        return container_id in self._listed

    # ---- returning executors -----------------------------------------------------------------------------------

    def refusal(self, task: Task, attempt: int, container_id: str) -> Optional[str]:
        """Return the reason why the executor of a listed container is rejected, or None if it is accepted."""
        if container_id not in self._listed:
            return f"the application master does not wait for {container_id}"
        if task.done:
            return f"{task.name} has ended"
        if not self._state.has(task) or task.unrequested:
            return f"the job continues without {task.name}"
        if task.waits_for_types:
            return f"{task.name} restarts from the beginning"
        newest = task.attempt
        if attempt < newest or (attempt == newest and task.container is not None):
            return f"attempt {attempt} of {task.name} in {container_id} was replaced"
        return None

    def adopt(
        self,
        task: Task,
        attempt: int,
        container_id: str,
        host: str,
        ports: Mapping[str, int],
        generation: int,
        start: int,
        resumed: Optional[ResumePoint],
        now: float,
    ) -> None:
        """Adopt an executor that has registered and that ``refusal`` accepts."""
        self._until = now + WAIT_FOR_NEXT
        self._replayed_by = now + REPLAY
        self._containers.release(task, now)  # the container of an older attempt
        self._containers.adopt(task, self._listed.pop(container_id), attempt)
        task.host, task.ports = host, dict(ports)
        task.start = max(task.start, start)
        task.process = ProcessState(start, generation) if start else None
        if generation > self._newest:
            self._state.generation = Generation(generation, without=self._state.generation.without)
        if generation == self._newest and self._state.generation.resume is None:
            self._state.generation.resume = resumed
        if start and generation == self._newest and task.left_out:  # it started just before the former master died
            task.left_out = False
            self._state.generation.without -= {task.name}
        self._state.note("adopted", f"on {host}, generation {generation}, start {start}", task)

    def ended(self, container_id: str) -> None:
        """Record the end of a container, as the cluster reports it."""
        self._listed.pop(container_id, None)

    # ---- continuing the job ------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Continue the job once all executors are back, or the wait for them has timed out."""
        if self._state.verdict:
            self._give_up_the_rest(now)
        elif self._state.phase is not JobState.RECOVERING or now < self._replayed_by:
            return
        elif self._all_back:
            for container_id in self._listed:  # containers of older attempts, which still store their logs
                self._containers.shutdowns.wait_for(container_id, now)
            self._listed.clear()
            self._continue(now)
        elif not self._listed or now >= self._until:
            self._give_up_the_rest(now)
            self._continue(now)

    @property
    def _all_back(self) -> bool:
        return all(
            task.has_container or task.done or task.waits_for_types or task.unrequested for task in self._state.tasks
        )

    def _give_up_the_rest(self, now: float) -> None:
        for container_id in self._listed:
            self._containers.shutdowns.take(container_id, now)
        self._listed.clear()

    @property
    def _must_reset(self) -> bool:
        """Whether no executor is back, although the gang has not succeeded and the job is not suspended."""
        if self._suspension.reason is not None or self._groups.gang_has_succeeded:
            return False
        return not any(task.has_container for task in self._state.tasks)

    def _continue(self, now: float) -> None:
        if self._must_reset:
            self._sizes.reset_to_needed("no executor has returned; restarting with the required number of tasks")
        if self._groups.gang_has_succeeded:
            self._finished.do_without_the_lost(now)
        tasks = [task for task in self._state.tasks if self._continues(task)]
        self._containers.gang.begin(tasks, now)
        adopted = [task for task in tasks if task.has_container]
        missing = [task for task in tasks if not task.has_container]
        self._state.note("recovered", f"{len(adopted)} of {count(len(tasks), 'task')} have reconnected")
        self._state.emit(self._containers.nodes.choose())
        if not tasks:
            self._state.enter(JobState.RUNNING)  # waiting tasks begin next
        elif self._suspension.reason is not None and (self._suspension.is_complete or all(map(_was_stopped, adopted))):
            self._reset_requests(missing)
            self._suspension.stay_suspended(now)
        elif not adopted or (missing and self._gathers(adopted)):
            self._reset_requests(missing)
            self._context.stages.reset(missing, {task.type for task in tasks})
            self._containers.ask_for([task for task in tasks if not task.waits_for_types], now)
            self._restarts.prepare_start(now)
        elif not self._newest:
            self._state.enter(JobState.STARTING)
            self._restarts.prepare_start(now)
            self._replace(missing, now)
        else:
            self._state.enter(JobState.RUNNING)
            if self._groups.gang.restart:  # the restart was decided while the session waited for other executors
                self._state.enter(JobState.RESTARTING)
            self._continue_running(adopted, missing, now)

    @staticmethod
    def _reset_requests(tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.back_to_request()
            task.replaced, task.left_out = 0, False

    def _gathers(self, adopted: Sequence[Task]) -> bool:
        """Return whether the gang was still waiting for containers: no adopted task has had a user process."""
        return not self._state.first_come and not any(task.process for task in adopted)

    def _continues(self, task: Task) -> bool:
        if task.done or task.waits_for_types or task.unrequested:
            return False
        return task.has_container or not self._groups.is_needless(task)

    def _continue_running(self, adopted: list[Task], missing: list[Task], now: float) -> None:
        for task in adopted:
            if task.process:
                self._state.enter_cluster(task)
                self._check_end(task, task.process, now)
        if self._state.verdict:  # the verdict follows from processes that had ended in the meantime
            return
        for task in adopted:
            self._finished.check(task, now)
        self._restarts.begin_each([task for task in (*adopted, *missing) if self._is_new(task)], now)
        for task in missing:
            if self._is_new(task):
                self._containers.replace(task, now, "the task has not started yet", counted=False)
            elif not task.left_out and not self._groups.of(task).decided:  # a decided restart already waits for it
                self._restarts.record_failure(task, task.failure or failures.of_absence(task), now)
        known = [task for task in missing if not self._is_new(task)]
        self._replace([task for task in known if not self._groups.is_needless(task)], now)
        behind = {self._groups.of(task).name for task in adopted if not self._is_new(task) and self._must_start(task)}
        for group in self._groups.every:
            if not any(map(self._continues, group.members)):
                continue
            if group.decided or (not group.root_cause.pending and group.name in behind):
                self._restarts.restart(group, "the former application master was about to restart it", now)

    def _check_end(self, task: Task, process: ProcessState, now: float) -> None:
        if process.end and not process.end.stopped and not self._is_outdated(task, process):
            self._context.reports.look_at_end(task, process, process.end, now)

    def _replace(self, missing: list[Task], now: float) -> None:
        for task in missing:
            self._containers.replace(task, now, failures.of_absence(task).message)

    def _is_new(self, task: Task) -> bool:
        """Return whether the task starts independently of other tasks (``first_come``) and has not started yet."""
        return self._state.first_come and not task.has_begun

    def _must_start(self, task: Task) -> bool:
        """Return whether the former master left the task without a user process, or with one of an older generation."""
        if task.left_out or task.state is TaskState.SUCCEEDED:
            return False
        process = task.process
        if process is None or not process.runs:
            return True
        return self._is_outdated(task, process)

    def _is_outdated(self, task: Task, process: ProcessState) -> bool:
        return process.generation != self._newest and self._groups.of(task).is_gang

    @property
    def _newest(self) -> int:
        return self._state.generation.number

    # ---- history -----------------------------------------------------------------------------------------------

    def _remember(self, history: History) -> None:
        state = self._state
        state.sizing.hold, state.sizing.override_until = history.sizing.hold, history.sizing.override_until
        self._sizes.take_over(history.sizing)
        state.generation = Generation(history.generation, history.resume, without=frozenset(history.left_out))
        state.checkpoint, state.restarts = history.checkpoint, history.restarts
        state.went_back = history.went_back
        state.export, state.export_request = history.export, history.export_request
        for task in state.by_name.values():
            known = history.tasks.get(task.name, TaskHistory())
            task.attempt, task.start_at_reset = known.attempt, history.starts_at_reset.get(task.type, 0)
            task.start = max(known.start, history.start, task.start_at_reset)
        for tasks in state.of_type.values():
            if any(task.has_begun for task in tasks):  # the stage has begun, also for tasks that were added later
                for task in tasks:
                    task.waits_for_types = False
        self._finished.remember({name: known.outcome for name, known in history.tasks.items()})
        for name in history.left_out:
            if name in state.by_name:
                state.by_name[name].left_out = True
        for group in self._groups.every:
            times = history.restart_times.get(group.name, [])
            group.decided = history.restarting.get(group.name, False)
            group.budget = RestartBudget(state.job.restart, [time - state.epoch for time in times])
            group.progress = attrs.evolve(history.progress.get(group.name, group.progress))
            group.moves = history.moves.get(group.name, 0)
            seen = history.failures.get(group.name, [])
            group.repeats = RepeatedFailures(
                state.job.restart, [attrs.evolve(each, time=each.time - state.epoch) for each in seen]
            )
        self._containers.sizes.restore(history.memory)
        self._containers.nodes.restore(history.nodes)


def _was_stopped(task: Task) -> bool:
    """Return whether no process runs in the task's container, and no more results will come from a former process."""
    process = task.process
    return process is None or (process.settled and process.end is not None and process.end.stopped)


@attrs.frozen
class TaskHistory:
    """Counters and outcome of one task from the event log."""

    attempt: int = 1
    start: int = 0  # number of its newest start, if higher than History.start
    outcome: Optional[TaskOutcome] = None  # None if the task is not over


@attrs.frozen
class History:
    """Facts about the job from former application masters. Times are seconds since the epoch."""

    started: Optional[float] = None  # start of the application
    generation: int = 0  # newest generation that began
    resume: Optional[ResumePoint] = None  # checkpoint from which this generation resumed
    left_out: list[str] = attrs.field(factory=list)  # tasks that do not take part in this generation
    start: int = 0  # smallest number of starts of any task; TaskHistory has higher numbers
    starts_at_reset: dict[str, int] = attrs.field(factory=dict)  # see Task.start_at_reset; by task type
    tasks: dict[str, TaskHistory] = attrs.field(factory=dict)
    restarts: int = 0  # total number of restarts
    restart_times: dict[str, list[float]] = attrs.field(factory=dict)  # times of restarts since progress, by group
    failures: dict[str, list[SeenFailure]] = attrs.field(factory=dict)  # program failures since progress, by group
    moves: dict[str, int] = attrs.field(factory=dict)  # moves to other nodes since progress, by group
    progress: dict[str, GroupProgress] = attrs.field(factory=dict)  # highest steps, by restart group
    restarting: dict[str, bool] = attrs.field(factory=dict)  # whether a decided restart has yet to begin, by group
    nodes: dict[str, int] = attrs.field(factory=dict)  # number of lost containers, by host:port
    memory: dict[str, int] = attrs.field(factory=dict)  # raised memory in MiB, by task type
    checkpoint: Optional[ResumePoint] = None  # newest committed checkpoint
    went_back: str = ""  # URI of the checkpoint of the last resume, if it was not the newest one
    export: Optional[ExportedModel] = None  # newest export
    export_request: Optional[ExportRequest] = None  # unanswered request
    sizing: Sizing = attrs.field(factory=Sizing)  # each event that changes it contains all of its fields
    verdict: Optional[Verdict] = None  # the result of a job that was ending
    parts: list[OutputPart] = attrs.field(factory=list)  # outputs to publish, once all deciding tasks have succeeded

    @classmethod
    def read(cls, events: Iterable[Mapping[str, Any]]) -> History:
        """Return the history from the lines of the event log, oldest first.

        Each line is a JSON object with ``time_ms`` and optionally ``data``. Raises CodecError if the data that sessions
        wrote are malformed.
        """
        known: dict[str, Any] = {}
        for event in events:
            time_ms, data = event.get("time_ms"), event.get("data")
            if isinstance(time_ms, int):
                known.setdefault("started", time_ms / 1000)
            if isinstance(data, Mapping):
                known = merge_data(known, data)
        return from_plain(known, cls, ignore_unknown=True)


def merge_data(known: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``known`` updated with ``data``, including nested objects.

    Consecutive events may be merged into batches first if no key changes from another value to an object. A change from
    None to an object with all its fields is harmless.
    """
    merged = dict(known)
    for key, value in data.items():
        before = merged.get(key)
        merged[key] = merge_data(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged

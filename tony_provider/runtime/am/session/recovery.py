"""A new application master finds the tasks of its predecessor running, and goes on with them.

Nothing was written down for this but the counters (see History): what runs is what the cluster lists and what the
executors say when they register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am import words
from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.budget import Budget
from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.course import Course, Generation
from tony_provider.runtime.am.session.executors import Executors
from tony_provider.runtime.am.session.history import History, TaskHistory
from tony_provider.runtime.am.session.process import UserProcess
from tony_provider.runtime.am.session.repeats import Repeats
from tony_provider.runtime.am.session.restarts import Restarts
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.am.session.units import Units
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import JobState, TaskState

WAIT_FOR_NEXT = 30.0  # seconds for the next executor, once one has registered: thousands take their time
MOST_WAIT = 60.0  # seconds for the first one
REPLAY = 0.5  # seconds for what an executor tells again once it has registered


class Recovery:
    """Times are the session's, in seconds."""

    def __init__(
        self, course: Course, containers: Containers, units: Units, restarts: Restarts, executors: Executors
    ) -> None:
        self._course = course
        self._containers = containers
        self._units = units
        self._restarts = restarts
        self._executors = executors
        self._listed: dict[str, Container] = {}  # those whose executors were not heard of yet
        self._until = 0.0
        self._told_by = 0.0

    def begin(self, containers: Sequence[Container], history: History, now: float) -> None:
        self._course.phase = JobState.RECOVERING
        self._listed = {container.id: container for container in containers}
        self._until = now + MOST_WAIT
        self._remember(history)
        total = words.count(len(containers), "container")
        self._course.note("recovering", f"a new application master takes over {total} of generation {self._newest}")

    def leave_to_end(self, now: float) -> None:
        """The former application master has told everybody to stop: they have their grace and last copies."""
        course = self._course
        seconds = course.job.timeouts.grace + course.last_copies
        for container_id in self._listed:
            self._containers.departures.wait_for(container_id, now, seconds)
        self._listed.clear()

    @property
    def waiting_for(self) -> int:
        """Executors that have not come back yet."""
        return len(self._listed)

    def waits_for(self, container_id: str) -> bool:
        """Whether the executor of this container has not come back yet."""
        return container_id in self._listed

    # ---- executors that come back ------------------------------------------------------------------------------

    def refusal(self, task: Task, attempt: int, container_id: str) -> Optional[str]:
        """Why this executor of a container that the cluster listed may not go on."""
        if container_id not in self._listed:
            return f"{container_id} is not one of the containers that are waited for"
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
        """An executor that ``refusal`` has nothing against has registered."""
        self._until = now + WAIT_FOR_NEXT
        self._told_by = now + REPLAY
        self._containers.release(task, now)  # that of an older attempt
        self._containers.adopt(task, self._listed.pop(container_id), attempt)
        task.state, task.host, task.ports = TaskState.REGISTERED, host, dict(ports)
        task.start = max(task.start, start)
        task.process = UserProcess(start, generation) if start else None
        if generation > self._newest:
            self._course.generation = Generation(generation, without=self._course.generation.without)
        if generation == self._newest and self._course.generation.resume is None:
            self._course.generation.resume = resumed
        self._course.note("adopted", f"on {host}, generation {generation}, start {start}", task)

    def ended(self, container_id: str) -> None:
        """The cluster says so."""
        self._listed.pop(container_id, None)

    # ---- going on ----------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Go on once everybody is back, or was waited for long enough."""
        if self._course.verdict:
            self._give_up_the_rest(now)
        elif self._course.phase is not JobState.RECOVERING or now < self._told_by:
            return
        elif self._all_back:
            for container_id in self._listed:  # of former attempts, which keep their logs
                self._containers.departures.wait_for(container_id, now)
            self._listed.clear()
            self._go_on(now)
        elif not self._listed or now >= self._until:
            self._give_up_the_rest(now)
            self._go_on(now)

    @property
    def _all_back(self) -> bool:
        return all(task.has_container or task.given_up for task in self._course.tasks)

    def _give_up_the_rest(self, now: float) -> None:
        for container_id in self._listed:
            self._containers.departures.take(container_id, now)
        self._listed.clear()

    def _go_on(self, now: float) -> None:
        tasks = [task for task in self._course.tasks if not task.given_up]
        adopted = [task for task in tasks if task.has_container]
        missing = [task for task in tasks if not task.has_container]
        self._course.note("recovered", f"{len(adopted)} of {words.count(len(tasks), 'task')} are back")
        self._course.emit(self._containers.nodes.choose())
        if not adopted:
            for task in missing:
                task.back_to_request()
                task.replaced, task.absent = 0, False
            self._containers.ask_for_all(now)
            self._restarts.prepare_start(now)
        elif not self._newest:
            self._course.phase = JobState.STARTING
            self._restarts.prepare_start(now)
            self._replace(missing, now)
        else:
            self._course.phase = JobState.RUNNING
            self._go_on_running(adopted, missing, now)

    def _go_on_running(self, adopted: list[Task], missing: list[Task], now: float) -> None:
        for task in adopted:
            if task.process:
                self._course.enter_cluster(task)
                self._look_at_end(task, task.process, now)
        for task in missing:
            if not task.absent:
                self._restarts.trouble(task, task.failure or failures.of_absence(task), now)
        self._replace(missing, now)
        behind = {self._units.of(task).name for task in adopted if self._must_start(task)}
        for unit in self._units.every:
            if unit.decided or (not unit.judge.pending and unit.name in behind):
                self._restarts.again(unit, "the former application master was about to start it again", now)

    def _look_at_end(self, task: Task, process: UserProcess, now: float) -> None:
        if process.end and not process.end.stopped and not self._is_outdated(task, process):
            self._executors.look_at_end(task, process, process.end, now)

    def _replace(self, missing: list[Task], now: float) -> None:
        for task in missing:
            self._containers.replace(task, now, failures.of_absence(task).message)

    def _must_start(self, task: Task) -> bool:
        """Its former master left it without a user process, or with one of an older generation."""
        if task.absent or task.state is TaskState.SUCCEEDED:
            return False
        process = task.process
        if process is None or not process.runs:
            return True
        return self._is_outdated(task, process)

    def _is_outdated(self, task: Task, process: UserProcess) -> bool:
        return process.generation != self._newest and task in self._units.gang.members

    @property
    def _newest(self) -> int:
        return self._course.generation.number

    # ---- what the event log says -------------------------------------------------------------------------------

    def _remember(self, history: History) -> None:
        course = self._course
        course.generation = Generation(history.generation, history.resume, without=frozenset(history.absent))
        course.checkpoint, course.restarts = history.checkpoint, history.restarts
        for task in course.tasks:
            known = history.tasks.get(task.name, TaskHistory())
            task.attempt, task.start = known.attempt, max(known.start, history.start)
        for name in history.absent:
            if name in course.by_name:
                course.by_name[name].absent = True
        for unit in self._units.every:
            times = history.restart_times.get(unit.name, [])
            unit.decided = history.restarting.get(unit.name, False)
            unit.budget = Budget(course.job.restart, [time - course.epoch for time in times])
            seen = history.failures.get(unit.name, [])
            unit.repeats = Repeats(
                course.job.restart, [attrs.evolve(each, time=each.time - course.epoch) for each in seen]
            )
        self._containers.sizes.restore(history.memory)
        self._containers.nodes.restore(history.nodes)

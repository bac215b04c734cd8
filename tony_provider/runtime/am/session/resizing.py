"""Resizing of a gang, at a user's request or by the job's policy, and use of the queue's spare capacity.

Added tasks take part once their executors have registered and the gang has restarted. Tasks to remove run until the
next checkpoint, and then the gang restarts without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Optional

from tony_provider.runtime.am.resource_manager import Room
from tony_provider.runtime.am.session.actions import ProbeRoom
from tony_provider.runtime.am.session.session_state import Part, SessionContext, Task
from tony_provider.runtime.common.quantities import count, some, span
from tony_provider.runtime.jobspec.model import GrowRule, Role, resize_refusal
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState

_WHY = (", because the queue has spare room", ", because the cluster reclaims containers")  # to grow, to shrink


class Resizing(Part):
    """Session component that changes the number of tasks of a type."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._checkpoint_wait = context.checkpoints.new_wait()

    def refusal(self, counts: Mapping[str, int]) -> Optional[str]:
        """Return the reason why the specification forbids these numbers of tasks, or None if it permits them."""
        return resize_refusal(self._state.job, counts)

    @property
    def is_too_late(self) -> bool:
        """Whether the gang never restarts: the job is ending, or its gang has succeeded."""
        return self._state.is_ending or self._groups.gang_has_succeeded

    def ask(self, counts: Mapping[str, int], reason: str, now: float) -> None:
        """Resize these types at a user's request. A repeated request changes nothing.

        Request containers again for tasks that the session had given up after lost containers.
        """
        if self.is_too_late or self.refusal(counts):
            return
        self._sizes.request(counts, reason, by_policy=False)
        for task in [task for name in counts for task in self._sizes.present(name)]:
            if task.left_out and task.state is TaskState.LOST:
                task.replaced = 0
                self._containers.replace(task, now, reason, counted=False)

    def check(self, now: float) -> None:
        """Take the next step of a resize."""
        if not self._sizes.requested:
            return
        if self.is_too_late:
            for name in self._sizes.requested:
                self._finish(name, f"{name}: not resized, because the gang does not restart any more")
            return
        suspended = self._state.phase is JobState.SUSPENDED
        if self._restarts.undecided or (self._suspension.reason is not None and not suspended):
            return
        for name, number in self._sizes.requested.items():
            if number > len(self._sizes.present(name)) and self._can_grow(name):
                self._grow(name)
        leaving = [task for name in self._sizes.requested for task in self._sizes.excess(name)]
        if not leaving:
            self._checkpoint_wait.end()
        elif self._may_leave(leaving, now):
            self._shrink(leaving, now)

    # ---- adding tasks ------------------------------------------------------------------------------------------

    def _can_grow(self, name: str) -> bool:
        """Return whether tasks may be added.

        A later stage that waits for containers delays the growth of a running stage.
        """
        first = self._sizes.present(name)[0]
        return self._state.phase is not JobState.WAITING or first.waits_for_types or self._containers.gang.brings(first)

    def _grow(self, name: str) -> None:
        state = self._state
        first = self._sizes.present(name)[0]
        before, starts = len(state.of_type[name]), min(task.start for task in state.tasks)
        more = self._sizes.requested[name] - len(self._sizes.present(name))
        unrequested = [task for task in state.of_type[name] if task.unrequested][:more]
        for task in unrequested:
            task.request_again()
        state.resize({name: before + more - len(unrequested)})
        new = [*unrequested, *state.of_type[name][before:]]
        self._follow(new, [])
        begun = state.phase in (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING)
        for task in new:
            task.waits_for_types, task.left_out = first.waits_for_types, begun and not first.waits_for_types
            # The start numbers must not be lower than ``History.start``, which the event log has for all tasks.
            task.start_at_reset, task.start = first.start_at_reset, max(task.start, starts, first.start_at_reset)
        if state.generation.number:
            state.generation.without |= {task.name for task in new if task.left_out}
        state.note_sizing("larger", f"growing to {count(self._sizes.requested[name], name)}", data=self._left_out)
        if not first.waits_for_types and state.phase is not JobState.SUSPENDED:
            self._containers.join(new)

    # ---- removing tasks ----------------------------------------------------------------------------------------

    def _may_leave(self, leaving: Sequence[Task], now: float) -> bool:
        """Return whether the leaving tasks have nothing left to report. Stop running tasks after a checkpoint."""
        at_work = [task for task in leaving if not task.left_out and not task.waits_for_types]
        if at_work and self._state.phase is JobState.RUNNING:
            self._halt(f"the gang shrinks by {some(task.name for task in at_work)}", now)
            if self._groups.gang.restart is None:
                return False
        return not any(task.busy for task in at_work)

    def _halt(self, reason: str, now: float) -> None:
        if self._checkpoint_wait.is_over(reason, now):
            self._restarts.restart(self._groups.gang, reason, now)

    def _shrink(self, leaving: Sequence[Task], now: float) -> None:
        state, types = self._state, list(dict.fromkeys(task.type for task in leaving))
        self._checkpoint_wait.end()
        self._drop(types, leaving)
        self._follow([], leaving)
        self._containers.part(leaving, now, "the job continues with fewer tasks")
        for task in leaving:
            if state.has(task):
                task.stop_requesting()
        attempts = {task.name: {"attempt": task.attempt} for task in leaving}
        names = some(task.name for task in leaving)
        state.note_sizing("smaller", f"continuing without {names}", data={**self._left_out, "tasks": attempts})

    def _drop(self, types: Sequence[str], leaving: Sequence[Task]) -> None:
        """Remove leaving and unrequested tasks, but only above the highest index of a remaining task of their type."""
        for name in types:
            last = max(task.index for task in self._sizes.present(name) if task not in leaving)
            for task in self._state.beyond(name, last + 1):
                task.request_again()
            self._state.resize({name: last + 1})

    # ---- common parts ------------------------------------------------------------------------------------------

    def _follow(self, new: Sequence[Task], gone: Sequence[Task]) -> None:
        self._groups.set_tasks(self._state.tasks)
        if restart := self._groups.gang.restart:
            staying = [task for task in restart.members if self._state.has(task) and task not in gone]
            restart.members = [*staying, *(task for task in new if task not in staying)]

    @property
    def _left_out(self) -> dict[str, list[str]]:
        """The tasks without which the generation continues, for the event log."""
        return {"left_out": [task.name for task in self._state.tasks if task.left_out]}

    def note_finished(self) -> None:
        """Log which resizes are complete. Call this method after ``Restarts.advance``."""
        done = [name for name in self._sizes.requested if self._is_done(name)]
        for name in done:
            there = sum(1 for task in self._state.of_type[name] if not task.left_out)
            of = f" of {self._sizes.requested[name]}" if there < self._sizes.requested[name] else ""
            self._finish(name, f"{name}: resized to {there}{of}")

    def _finish(self, name: str, message: str) -> None:
        self._checkpoint_wait.end()
        self._sizes.end_resize(name, message)

    def _is_done(self, name: str) -> bool:
        tasks = self._sizes.present(name)
        if len(tasks) != self._sizes.requested[name]:
            return False
        if tasks[0].waits_for_types or self._state.phase is JobState.SUSPENDED:
            return True
        if self._state.phase is not JobState.RUNNING or self._groups.gang.restart:
            return False
        return not any(_is_to_come(task) for task in tasks)

    # ---- descriptions ------------------------------------------------------------------------------------------

    def describe(self) -> Iterator[str]:
        """Yield the resizes under way, each with what it waits for."""
        for name, number in self._sizes.requested.items():
            tasks = self._sizes.present(name)
            there, why = len(tasks), _WHY[number < len(tasks)] if name in self._sizes.by_policy else ""
            to_come = [task for task in tasks if _is_to_come(task)]
            requested = [task for task in to_come if task.state is TaskState.REQUESTED]
            if number < there:
                yield f"shrinking to {count(number, name)}{why}, after the next checkpoint"
            elif requested or number > there:
                missing = len(requested) + number - there
                yield f"growing to {count(number, name)}{why}: waiting for {count(missing, 'container')}"
            elif starting := [task.name for task in to_come if not task.ready]:
                yield f"growing to {count(number, name)}{why}: waiting for {some(starting)} to register"
            elif to_come:
                yield f"growing to {count(number, name)}{why}, after the next checkpoint"


def _is_to_come(task: Task) -> bool:
    """Return whether the task has not registered yet and may still get a container."""
    return task.left_out and task.state is not TaskState.LOST


class Elastic(Part):
    """Session component that decides when a gang continues without lost tasks, and when it grows again."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._checkpoint_wait = context.checkpoints.new_wait()
        self._first_at: Optional[float] = None  # time when the first left-out task was ready; None if none is ready

    # ---- shrinking ---------------------------------------------------------------------------------------------

    def not_replaced(self, late: Sequence[Task], now: float) -> None:
        """Continue without these tasks, whose containers were not granted in time, or wait for the whole gang again."""
        restart = self._groups.gang.restart
        members = restart.members if restart else []
        for task in late:
            if task not in members or task.left_out or self._state.first_come:
                task.deadline = None  # the job does not wait for it
            elif task.role is Role.SIDECAR:
                self._restarts.give_up(task, self._no_container([task]), now)
        needed = [task for task in late if task.deadline is not None and not task.done]
        if not needed or any(task.busy for task in members):
            return
        if self._may_leave_out(needed):
            self._leave_out(needed)
        else:
            why = self._no_container(needed).message
            self._sizes.reset_to_needed(why)
            self._containers.give_all_back(now, why)
            self._restarts.prepare_start(now)

    def _no_container(self, tasks: Sequence[Task]) -> Failure:
        names = some(task.name for task in tasks)
        limit = self._state.job.timeouts.replacement
        message = f"no new container for {names} was granted within {limit:g} s (timeouts.replacement)"
        return Failure(FailureKind.CONTAINER_LOST, message, tasks[0].name)

    def _may_leave_out(self, tasks: Collection[Task]) -> bool:
        """Return whether the gang can continue without these tasks and without the tasks already left out."""
        return all(self._context.framework.elastic(task.role) and self._enough_left(task.type, tasks) for task in tasks)

    def _leave_out(self, tasks: Collection[Task]) -> None:
        """Continue without these tasks. Their containers remain requested."""
        for task in tasks:
            task.left_out, task.deadline = True, None
        names = some(task.name for task in tasks)
        self._state.note("smaller", f"continuing without {names}: no container was granted in time")

    def _enough_left(self, task_type: str, leaving: Collection[Task]) -> bool:
        of_type = [task for task in self._state.tasks if task.type == task_type]
        left = [task for task in of_type if not task.left_out and task not in leaving]
        spec = self._state.job.tasks[task_type]
        least = spec.least_instances if spec.grow is GrowRule.SPARE else spec.min_instances
        return least is not None and len(left) >= least

    # ---- growing -----------------------------------------------------------------------------------------------

    def check(self, now: float, *, committed: bool = False) -> None:
        """Restart the gang with the waiting tasks, after a checkpoint.

        ``committed`` means that a checkpoint has just been committed.
        """
        waiting = self._waiting(now)
        reason = f"the gang grows by {some(waiting)}"
        if not waiting:
            self._checkpoint_wait.end()
        elif committed or self._checkpoint_wait.is_over(reason, now, patient=True):
            self._restarts.restart(self._groups.gang, reason, now)

    def _waiting(self, now: float) -> list[str]:
        """Return the names of left-out tasks to include: none until all are ready or timeouts.allocation is over."""
        goes_on = self._state.phase is JobState.RUNNING and self._suspension.reason is None
        left_out: list[Task] = []
        if goes_on and not self._groups.gang_has_succeeded:
            left_out = [task for task in self._state.tasks if task.left_out]
        there = [task.name for task in left_out if task.ready]
        if not there:
            self._first_at = None
            return []
        if self._first_at is None:
            self._first_at = now
        late = any(not task.ready and task.state is not TaskState.LOST for task in left_out)
        return [] if late and now < self._first_at + self._state.job.timeouts.allocation else there


_PROBES = 2  # checks for each timeouts.spare: the first finds room, the second confirms it
_MAX_DOUBLINGS = 5  # limit of doublings of the delay after failed attempts


class SpareRoom(Part):
    """Session component that lets the job use spare capacity of its queue, and withdraws requests that fail."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._spare = self._state.job.timeouts.spare
        self._calm_since: Optional[float] = None
        self._probe_keys = itertools.count(1)
        self._open_probe: Optional[tuple[int, str]] = None  # key and type of the unanswered check
        self._probe_at = 0.0  # time of the next check
        self._found: Optional[tuple[str, float, int]] = None  # type, time when room was found, smallest room since
        self._without_room: set[str] = set()  # types without room at their last check
        self._give_up_at: dict[str, float] = {}  # time to withdraw open requests, by type that the policy grows
        self._failed_attempts = 0  # number of consecutive failed attempts to grow
        self._not_before = 0.0  # earliest time of the next attempt

    def probed(self, room: Room, now: float) -> None:
        """Record the number of containers that the cluster has room for."""
        if self._open_probe is None or self._open_probe[0] != room.key:
            return
        (_, name), self._open_probe = self._open_probe, None
        self._probe_at = now + self._spare / _PROBES
        if not room.containers:
            self._found = None
            self._without_room.add(name)
        elif self._found and self._found[0] == name:
            self._found = name, self._found[1], min(self._found[2], room.containers)
        else:
            self._found = name, now, room.containers

    def disturbed(self) -> None:
        """Restart the observation of spare capacity, because the cluster takes resources back."""
        self._calm_since = self._open_probe = self._found = None
        self._without_room.clear()

    def tick(self, now: float) -> None:
        """Take the next step."""
        if not self._sizes.using_spare:
            return
        self._withdraw_late_requests(now)
        if not self._is_calm:
            self.disturbed()
            return
        if self._calm_since is None:
            self._calm_since = self._probe_at = now
        if self._found and self._found[0] not in self._growable():
            self._found = None  # a user has limited the type to its present number
        if self._open_probe is not None:
            return
        if self._found and now >= max(self._found[1] + self._spare, self._not_before):
            self._use(self._found[0], self._found[2])
        elif now >= self._probe_at:
            self._probe()

    # ---- using spare capacity ----------------------------------------------------------------------------------

    def _growable(self) -> list[str]:
        """Return the types that could have more tasks, in the order of the specification."""
        return [name for name in self._sizes.using_spare if self._sizes.number(name) < self._sizes.policy_limit(name)]

    def _probe(self) -> None:
        """Check the first type that could have more tasks, without types that had no room at their last check."""
        growable = self._growable()
        if self._without_room.issuperset(growable):
            self._without_room.clear()
        name = next((name for name in growable if name not in self._without_room), None)
        if name is not None:
            key = next(self._probe_keys)
            self._open_probe = key, name
            number = self._sizes.number(name)
            # At most double the present number, because the check briefly withholds the room from other applications.
            more = min(self._sizes.policy_limit(name) - number, max(number, 1))
            self._state.emit(ProbeRoom(self._containers.sizes.request(name, key), more))

    def _use(self, name: str, least: int) -> None:
        number = min(self._sizes.number(name) + least, self._sizes.policy_limit(name))
        self._sizes.request({name: number}, f"the queue has had spare room for {span(self._spare)}", by_policy=True)

    @property
    def _is_calm(self) -> bool:
        """Whether all intended tasks are running and no change is under way."""
        if self._state.phase is not JobState.RUNNING or self._suspension.reason is not None:
            return False
        if self._sizes.requested or self._groups.gang.restart or self._restarts.undecided:
            return False
        return all(task.state is TaskState.RUNNING for task in self._groups.gang.members if not task.unrequested)

    # ---- withdrawing requests ----------------------------------------------------------------------------------

    def _withdraw_late_requests(self, now: float) -> None:
        """Withdraw requests that the cluster does not grant, because the room is gone."""
        growing = {name: missing for name in self._sizes.by_policy if (missing := self._missing(name))}
        for name in list(self._give_up_at):
            if name not in growing:
                del self._give_up_at[name]
                self._failed_attempts = 0
        for name, missing in growing.items():
            give_up_at = self._give_up_at.setdefault(name, now + self._state.job.timeouts.replacement)
            if now >= give_up_at and self._state.phase is JobState.RUNNING:
                del self._give_up_at[name]
                self._give_up(name, len(missing), now)

    def _missing(self, name: str) -> list[Task]:
        """Return the tasks whose containers are still requested, except tasks that a preemption removes."""
        leaving = self._sizes.excess(name)
        requested = [task for task in self._sizes.present(name) if task.left_out and task.state is TaskState.REQUESTED]
        return [task for task in requested if task not in leaving]

    def _give_up(self, name: str, missing: int, now: float) -> None:
        wait = self._spare * 2 ** min(self._failed_attempts, _MAX_DOUBLINGS)
        self._failed_attempts += 1
        self._not_before = now + wait
        limit = self._state.job.timeouts.replacement
        what = f"{count(missing, 'container')} not granted within {limit:g} s (timeouts.replacement)"
        reason = f"{what}; next attempt in {span(wait)}"
        self._sizes.request({name: self._sizes.number(name) - missing}, reason, by_policy=True)

    # ---- descriptions ------------------------------------------------------------------------------------------

    def describe(self) -> Iterator[str]:
        """Yield the types that could still grow."""
        for name in self._growable():
            if name not in self._sizes.requested and not self._groups.gang_has_succeeded:
                yield f"growing to up to {count(self._sizes.policy_limit(name), name)} when the queue has spare room"

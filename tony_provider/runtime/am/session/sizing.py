"""Number of tasks of each type, advance notices of preemptions and leaving nodes, and suspension of the job.

A type with ``grow: spare`` has more possible tasks than it needs. Tasks whose containers the cluster takes back become
unrequested: their containers are not requested until the queue has room again, and other tasks keep their indices.

A suspension releases all containers after a checkpoint, and requests them again when the job resumes. The application
and its master continue to run meanwhile. A user or the job's windows suspend and resume the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.session_state import (
    Hold,
    HoldSource,
    Part,
    SessionContext,
    Sizing,
    Task,
    TypeSize,
    reopened_record,
)
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.model import GrowRule
from tony_provider.runtime.jobspec.opening_hours import Week, read_hours
from tony_provider.runtime.protocol.status import JobState, TaskState


class TypeSizes(Part):
    """The number of tasks of each type, as set by users or by the job's policy."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self.using_spare = [name for name, task in self._state.job.tasks.items() if task.grow is GrowRule.SPARE]
        self._types = self._state.sizing.types

    def take_over(self, sizing: Sizing) -> None:
        """Restore the sizes of a former application master, see History."""
        self._types.update({name: size for name, size in sizing.types.items() if name in self._types})
        self._state.resize({})
        self._groups.set_tasks(self._state.tasks)
        for name in sizing.unrequested:
            if name in self._state.by_name:
                self._state.by_name[name].stop_requesting()

    @property
    def requested(self) -> dict[str, int]:
        """The requested number of tasks, by type that is being resized."""
        return {name: size.requested for name, size in self._types.items() if size.requested is not None}

    @property
    def by_policy(self) -> list[str]:
        """The types that the job's policy resizes, not a user."""
        return [name for name, size in self._types.items() if size.by_policy]

    # ---- present numbers ---------------------------------------------------------------------------------------

    def present(self, name: str) -> list[Task]:
        """Return the tasks of a type that have a container or wait for one."""
        return [task for task in self._state.of_type[name] if not task.unrequested]

    def number(self, name: str) -> int:
        """Return the present number of tasks of a type, or the requested number during a resize."""
        requested = self._types[name].requested
        return len(self.present(name)) if requested is None else requested

    def needed(self, name: str) -> int:
        """Return the number of tasks of a type that are always replaced."""
        return self._limited(name, self._state.job.tasks[name].instances)

    def policy_limit(self, name: str) -> int:
        """Return the largest number of tasks of a type that the job's policy may request."""
        return self._limited(name, self._state.job.tasks[name].most_instances)

    def _limited(self, name: str, number: int) -> int:
        limit = self._types[name].spare_limit
        return number if limit is None else min(number, limit)

    def excess(self, name: str) -> list[Task]:
        """Return the surplus tasks of a type. If the type uses spare capacity, tasks without a container come first."""
        present = self.present(name)
        more = max(0, len(present) - self.number(name))
        first = sorted(present, key=_goes_first if name in self.using_spare else lambda task: -task.index)
        return sorted(first[:more], key=lambda task: task.index)

    # ---- requested numbers -------------------------------------------------------------------------------------

    def request(self, counts: Mapping[str, int], reason: str, *, by_policy: bool) -> None:
        """Request these numbers of tasks. Types that have their number, or are being resized to it, do not change."""
        sizes = {name: self._after_request(name, number, by_policy=by_policy) for name, number in counts.items()}
        if all(size == self._types[name] for name, size in sizes.items()):
            return
        before = {name: self.number(name) for name in counts}
        self._types.update(sizes)
        changes = [f"{count(was, name)} -> {counts[name]}" for name, was in before.items() if was != counts[name]]
        limits = [f"{name}: {_at_most(sizes[name].spare_limit)}" for name in counts if name in self.using_spare]
        self._state.note_sizing("resizing", f"{', '.join(changes or limits)}: {first_line(reason)}")

    def _after_request(self, name: str, number: int, *, by_policy: bool) -> TypeSize:
        """Return the size of a type after a request.

        A user who shrinks a type sets a limit for the policy, and a user who enlarges it lifts that limit.
        """
        size, present = self._types[name], self.number(name)
        if number != present:
            size = attrs.evolve(size, requested=number, by_policy=by_policy)
        if by_policy:
            return size
        limit = number if name in self.using_spare and number <= present else None
        return attrs.evolve(size, by_policy=False, spare_limit=limit)

    def end_resize(self, name: str, message: str) -> None:
        """Note that the resize of a type is over."""
        self._types[name] = attrs.evolve(self._types[name], requested=None, by_policy=False)
        self._state.note_sizing("resized", message)

    # ---- shrinking ---------------------------------------------------------------------------------------------

    def give_back(self, tasks: Iterable[Task], reason: str) -> bool:
        """Remove unneeded tasks whose containers the cluster takes back.

        Return whether the shrinking itself requests a checkpoint.
        """
        if self._state.phase not in (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING):
            return False
        if self._state.verdict:
            return False
        fewer: dict[str, int] = {}
        for name in dict.fromkeys(task.type for task in tasks if task.type in self.using_spare):
            staying = [task for task in self.present(name) if not task.left_out and not task.preempted]
            number = max(self.needed(name), len(staying))
            if number < self.number(name):
                fewer[name] = number
        self.request(fewer, reason, by_policy=True)
        return any(not task.left_out for name in fewer for task in self.excess(name))

    def may_go(self, task: Task) -> bool:
        """Return whether the job can continue at once without this task, whose container is gone."""
        if task.type not in self.using_spare or self._containers.gathers(task):
            return False
        others = [each for each in self.present(task.type) if not each.left_out and each is not task]
        return len(others) >= self.needed(task.type)

    def stop_requesting(self, task: Task) -> None:
        """Continue without a task whose container is gone, and do not request another one."""
        self._state.emit(*self._containers.gang.part([task]))
        known = reopened_record(task)
        task.stop_requesting()
        data: dict[str, Any] = {"tasks": {task.name: {"attempt": task.attempt, **known}}}
        size, number = self._types[task.type], len(self.present(task.type))
        if size.requested is not None and size.requested > number:
            self._types[task.type] = attrs.evolve(size, requested=number)
        message = f"continuing without {task.name} until the queue has spare room again"
        self._state.note_sizing("smaller", message, data=data)

    def reset_to_needed(self, reason: str) -> None:
        """Shrink types that use spare capacity to what the job needs, because all its tasks restart.

        A user's resize that is not complete stays open.
        """
        unrequested = [task for task in self._state.tasks if task.unrequested]
        for task in unrequested:
            task.request_again()
        if unrequested:
            names = some(task.name for task in unrequested)
            self._state.note_sizing("occupied", f"these tasks belong to the job again: {names}")
        own = [name for name in self.using_spare if self._types[name].requested is None or self._types[name].by_policy]
        self.request({name: self.needed(name) for name in own}, reason, by_policy=True)


def _goes_first(task: Task) -> tuple[bool, bool, bool, int]:
    requested = task.left_out and task.state is TaskState.REQUESTED
    return not requested, not task.left_out, not task.preempted, -task.index


def _at_most(number: Optional[int]) -> str:
    return "limited only by the room in the queue" if number is None else f"at most {number} from now on"


class AdvanceNotices(Part):
    """Session component that handles advance notices, and requests checkpoints because of them."""

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float]) -> None:
        tasks = [self._containers.task_in(container_id) for container_id in container_ids]
        why = "the cluster reclaims containers"
        new = self._mark_preempted([task for task in tasks if task], "preempting", why, seconds)
        if new and not self._sizes.give_back(new, why):  # the shrinking itself requests a checkpoint
            self._checkpoints.ask(_with_time(why, seconds))

    def node_leaving(self, node: str, seconds: Optional[float]) -> None:
        tasks = [task for task in self._state.tasks if task.has_container and task.node == node]
        why = f"{node} is taken out of service"
        if self._mark_preempted(tasks, "node_leaving", why, seconds):
            self._checkpoints.ask(_with_time(why, seconds))

    def checkpoint_requested(self, reason: str) -> None:
        asked = self._checkpoints.ask(reason)
        self._state.note(
            "checkpoint_requested", reason if asked else f"{reason}; no running task can save a checkpoint"
        )

    def _mark_preempted(self, tasks: Sequence[Task], event: str, why: str, seconds: Optional[float]) -> list[Task]:
        """Mark tasks whose containers the cluster takes back, so that their nodes are not blamed for the losses.

        Return the newly marked tasks.
        """
        new = [task for task in tasks if not task.preempted]  # the cluster repeats its notices
        for task in new:
            task.preempted = True
        if new:
            self._state.note(event, f"{_with_time(why, seconds)}: {some(task.name for task in new)}")
        return new


def _with_time(why: str, seconds: Optional[float]) -> str:
    return why if seconds is None else f"{why} in {seconds:.0f} s"


class Suspension(Part):
    """Session component that suspends and resumes the job."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        windows = self._state.job.windows
        self._week = Week(map(read_hours, windows.open), context.zone_offsets) if windows else None
        self._checkpoint_wait = context.checkpoints.new_wait()
        self._checked_from = 0  # index of a task that delayed the suspension at the last check

    @property
    def reason(self) -> Optional[str]:
        """The reason of the present or pending suspension, or None if there is no suspension."""
        hold = self._state.sizing.hold
        return hold.reason if hold else None

    @property
    def is_complete(self) -> bool:
        """Whether all containers are released."""
        hold = self._state.sizing.hold
        return hold is not None and hold.released

    @property
    def _is_by_windows(self) -> bool:
        hold = self._state.sizing.hold
        return hold is not None and hold.source is HoldSource.WINDOWS

    # ---- orders of users, and windows ------------------------------------------------------------------------------

    def ask(self, reason: str) -> None:
        """Suspend the job at a user's request, unless it is suspended or ending.

        An open window does not resume a job that a user has suspended.
        """
        if self.reason is None or self._is_by_windows:
            self._hold(reason, HoldSource.USER)

    def resume(self, reason: str, now: float) -> None:
        """Resume the job at a user's request, or cancel a pending suspension.

        If no window is open, the job runs until the next window closes.
        """
        if self.reason is not None:
            moment = self._state.epoch + now
            self._resume(reason, now, override_until=self._week.next_opening(moment) if self._week else 0.0)

    def check_windows(self, now: float) -> None:
        """Suspend or resume the job according to its windows. A job without windows is unaffected."""
        week, windows, moment = self._week, self._state.job.windows, self._state.epoch + now
        if week is None or windows is None:
            return
        if week.is_open(moment):
            if self._is_by_windows:
                self._resume("one of the job's windows is open", now)
        elif self.reason is None and moment >= self._state.sizing.override_until:
            opening = week.in_words(week.next_opening(moment))
            why = f"none of the job's windows is open; the next window opens {opening} ({windows.zone})"
            self._hold(why, HoldSource.WINDOWS)

    def _hold(self, reason: str, source: HoldSource) -> None:
        if not self._state.is_ending:
            self._state.sizing.hold = Hold(reason, source, released=self.is_complete)
            self._state.note_sizing("suspending", reason)

    def _resume(self, reason: str, now: float, *, override_until: float = 0.0) -> None:
        if self._state.is_ending:
            return
        self._state.sizing.hold, self._state.sizing.override_until = None, override_until
        self._checkpoint_wait.end()
        self._state.note_sizing("resumed", reason)
        if self._state.phase is JobState.SUSPENDED:
            self._start_again(now)
        else:
            self._restarts.restart_all(f"the suspension is cancelled: {reason}", now)
            if self._state.phase is JobState.RESTARTING and self._groups.gang_has_succeeded:
                self._state.enter(JobState.RUNNING)  # nothing restarts, and waiting tasks begin next

    # ---- the suspension --------------------------------------------------------------------------------------------

    @property
    def waits_for_checkpoint(self) -> bool:
        """Whether all processes still run, so that they can save a checkpoint."""
        return self._checkpoint_wait.is_on and not self._restarts.held

    def check(self, now: float) -> None:
        """Take the next step: request a checkpoint, stop all processes, or release all containers."""
        if self.reason is None or self._state.phase is JobState.SUSPENDED:
            return
        if self._state.is_ending:  # tasks that may run until the end continue
            self._restarts.restart_all("the job is ending", now)
            return
        if not self._restarts.held:
            # No task of a gang that restarts can save a checkpoint.
            if self._state.phase is not JobState.RESTARTING and not self._checkpoint_wait.is_over(self._message, now):
                return
            self._restarts.stop_all(self._message, now)
        if self._restarts.undecided or self._is_held_up():
            return
        self._restarts.forget_starts()
        for task in self._state.tasks:  # some may have succeeded before they were stopped
            if task.state is TaskState.SUCCEEDED and not task.recorded:
                self._finished.check(task, now)
        if self._is_held_up():
            self._restarts.stop_all(self._message, now)  # the others start again if the job is resumed now
            return
        self._reset_sizes()
        self._release_all(now)

    def stay_suspended(self, now: float) -> None:
        """Stay suspended under a new application master, because no user process is running."""
        if not self.is_complete:  # a user may have requested another number of tasks since
            self._reset_sizes()
        self._release_all(now)

    def _reset_sizes(self) -> None:
        if not self._groups.gang_has_succeeded:
            self._sizes.reset_to_needed("the job is suspended; it resumes with the required number of tasks")

    @property
    def _message(self) -> str:
        return f"the job is suspended: {first_line(self.reason or '')}"

    def _is_held_up(self) -> bool:
        """Return whether a task may still deliver results, or its success is not on the store yet.

        A pending checkpoint only counts while its task has a container. Called after every message of thousands of
        executors, so a check continues at the last index.
        """
        tasks = self._state.tasks
        for _ in tasks:
            task = tasks[self._checked_from % len(tasks)]
            if task.busy or (task.recorded and task.has_container):
                return True
            self._checked_from = (self._checked_from + 1) % len(tasks)
        return False

    def _release_all(self, now: float) -> None:
        self._checkpoint_wait.end()
        self._containers.suspend([task for task in self._state.tasks if self._starts_again(task)], now, self._message)
        if hold := self._state.sizing.hold:
            self._state.sizing.hold = attrs.evolve(hold, released=True)
        self._state.note_sizing("suspended", "all containers are released, and none is requested")

    def _starts_again(self, task: Task) -> bool:
        return not task.done and not task.waits_for_types and not self._groups.is_needless(task)

    def _start_again(self, now: float) -> None:
        """Restart all tasks as at the job's start: stage by stage, and from the newest checkpoint."""
        tasks = [task for task in self._state.tasks if self._starts_again(task)]
        self._context.stages.reset(tasks, {task.type for task in tasks})
        if tasks:
            self._containers.ask_for([task for task in tasks if not task.waits_for_types], now)
            self._restarts.prepare_start(now)
        else:
            self._state.enter(JobState.RUNNING)  # waiting tasks begin next

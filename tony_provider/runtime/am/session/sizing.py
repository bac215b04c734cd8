"""Number of tasks of each type, and advance notices of preemptions and leaving nodes.

A type with ``grow: spare`` has more possible tasks than it needs. Tasks whose containers the cluster takes back become
unrequested: their containers are not requested until the queue has room again, and other tasks keep their indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.context import Part, SessionContext
from tony_provider.runtime.am.session.session_state import Sizing, Task, TypeSize, reopened_record
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.model import GrowRule
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
        first = sorted(present, key=_goes_first if name in self.using_spare else _goes_by_index)
        return sorted(first[:more], key=lambda task: task.index)

    # ---- requested numbers -------------------------------------------------------------------------------------

    def request(self, counts: Mapping[str, int], reason: str, *, by_policy: bool) -> None:
        """Request these numbers of tasks. Types that already have their number, or are to get it, do not change."""
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
        """Shrink types by unneeded tasks whose containers the cluster takes back.

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
        message = f"going on without {task.name}, until the queue has room to spare again"
        self._state.note_sizing("smaller", message, data=data)

    def reset_to_needed(self, reason: str) -> None:
        """Shrink types that use spare capacity to what the job needs, because it begins again.

        A user's request that is not complete stays open.
        """
        unrequested = [task for task in self._state.tasks if task.unrequested]
        for task in unrequested:
            task.request_again()
        if unrequested:
            names = some(task.name for task in unrequested)
            self._state.note_sizing("occupied", f"{names}: their indices are used again")
        own = [name for name in self.using_spare if self._types[name].requested is None or self._types[name].by_policy]
        self.request({name: self.needed(name) for name in own}, reason, by_policy=True)


def _goes_by_index(task: Task) -> int:
    return -task.index


def _goes_first(task: Task) -> tuple[bool, bool, bool, int]:
    requested = task.left_out and task.state is TaskState.REQUESTED
    return not requested, not task.left_out, not task.preempted, -task.index


def _at_most(number: Optional[int]) -> str:
    return "as many as there is room for" if number is None else f"no more than {number} from now on"


class AdvanceNotices(Part):
    """The part of the session that handles advance notices, and requests checkpoints because of them."""

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float]) -> None:
        tasks = [self._containers.task_in(container_id) for container_id in container_ids]
        why = "the cluster wants containers back"
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
        self._state.note("checkpoint_requested", reason if asked else f"{reason}; nobody runs who could make one")

    def _mark_preempted(self, tasks: Sequence[Task], event: str, why: str, seconds: Optional[float]) -> list[Task]:
        """Mark tasks whose containers the cluster takes back, which is not their nodes' fault.

        Return newly marked tasks.
        """
        new = [task for task in tasks if not task.preempted]  # the cluster repeats its notices
        for task in new:
            task.preempted = True
        if new:
            self._state.note(event, f"{_with_time(why, seconds)}: {some(task.name for task in new)}")
        return new


def _with_time(why: str, seconds: Optional[float]) -> str:
    return why if seconds is None else f"{why} in {seconds:.0f} s"

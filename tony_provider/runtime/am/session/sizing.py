"""Number of tasks of each type, and advance notices of preemptions and leaving nodes.

A type with ``grow: spare`` has more possible tasks than it needs. Tasks whose containers the cluster takes back become
vacant: their containers are not requested until the queue has room again, and other tasks keep their indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from tony_provider.runtime.am.session.context import Part, SessionContext
from tony_provider.runtime.am.session.session_state import Task, reopened_record
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.model import GrowRule
from tony_provider.runtime.protocol.status import JobState, TaskState


class TypeSizes(Part):
    """The number of tasks of each type, as set by users or by the job's policy."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self.wanted: dict[str, int] = {}  # requested number, by type that is being resized
        self.by_policy: set[str] = set()  # types of ``wanted`` that the job's policy resizes, not a user
        self._most: dict[str, int] = {}  # limit that a user has set for the policy, by type
        self.sparing = [name for name, task in self._state.job.tasks.items() if task.grow is GrowRule.SPARE]

    def take_over(
        self,
        wanted: Mapping[str, Optional[int]],
        by_policy: Mapping[str, bool],
        most: Mapping[str, Optional[int]],
    ) -> None:
        """Restore the state of a former application master, see History."""
        self.wanted = {name: number for name, number in wanted.items() if number is not None}
        self.by_policy = {name for name in self.wanted if by_policy.get(name)}
        self._most = {name: number for name, number in most.items() if number is not None}

    # ---- present numbers ---------------------------------------------------------------------------------------

    def there(self, name: str) -> list[Task]:
        """Return the tasks of a type that have a container or wait for one."""
        return [task for task in self._state.of_type[name] if not task.vacant]

    def number(self, name: str) -> int:
        """Return the present number of tasks of a type, or the requested number during a resize."""
        return self.wanted.get(name, len(self.there(name)))

    def needed(self, name: str) -> int:
        """Return the number of tasks of a type that are always replaced."""
        instances = self._state.job.tasks[name].instances
        return min(instances, self._most.get(name, instances))

    def most(self, name: str) -> int:
        """Return the largest number of tasks of a type that the job's policy may request."""
        most = self._state.job.tasks[name].most_instances
        return min(most, self._most.get(name, most))

    def excess(self, name: str) -> list[Task]:
        """Return the surplus tasks of a type. If the type uses spare capacity, tasks without a container come first."""
        there = self.there(name)
        more = max(0, len(there) - self.number(name))
        first = sorted(there, key=_goes_first if name in self.sparing else _goes_by_index)
        return sorted(first[:more], key=lambda task: task.index)

    # ---- requested numbers -------------------------------------------------------------------------------------

    def want(self, counts: Mapping[str, int], reason: str, *, by_policy: bool) -> None:
        """Request these numbers of tasks. Types that already have their number, or are to get it, do not change."""
        before = {name: self.number(name) for name in counts}
        most = {} if by_policy else {name: self._cap(name, counts[name]) for name in counts if name in self.sparing}
        new = {name: number for name, number in counts.items() if number != before[name]}
        taken_over = {} if by_policy else {name: False for name in counts if name in self.by_policy}
        if not new and not taken_over and all(self._most.get(name) == number for name, number in most.items()):
            return
        self._most = {name: number for name, number in {**self._most, **most}.items() if number is not None}
        self.wanted.update(new)
        self.by_policy = {*self.by_policy, *new} if by_policy else self.by_policy - set(counts)
        data = {
            "resizing": new,
            "by_policy": dict.fromkeys(new, True) if by_policy else taken_over,
            "most": most,
        }
        changes = ", ".join(f"{count(before[name], name)} -> {number}" for name, number in new.items())
        what = changes or ", ".join(f"{name}: {_at_most(number)}" for name, number in most.items())
        noted = {key: each for key, each in data.items() if each}
        self._state.note("resizing", f"{what}: {first_line(reason)}", data=noted)

    def _cap(self, name: str, number: int) -> Optional[int]:
        """Return the limit for the policy: a user who shrinks a type sets one, and a user who enlarges it lifts it."""
        return number if number <= self.number(name) else None

    def over(self, name: str, message: str) -> None:
        """Note that the resize of a type is over."""
        del self.wanted[name]
        data: dict[str, Any] = {"resizing": {name: None}}
        if name in self.by_policy:
            self.by_policy.discard(name)
            data["by_policy"] = {name: False}
        self._state.note("resized", message, data=data)

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
        for name in dict.fromkeys(task.type for task in tasks if task.type in self.sparing):
            staying = [task for task in self.there(name) if not task.absent and not task.yields]
            number = max(self.needed(name), len(staying))
            if number < self.number(name):
                fewer[name] = number
        self.want(fewer, reason, by_policy=True)
        return any(not task.absent for name in fewer for task in self.excess(name))

    def may_go(self, task: Task) -> bool:
        """Return whether the job can continue at once without this task, whose container is gone."""
        if task.type not in self.sparing or self._containers.gathers(task):
            return False
        others = [each for each in self.there(task.type) if not each.absent and each is not task]
        return len(others) >= self.needed(task.type)

    def vacate(self, task: Task) -> None:
        """Continue without a task whose container is gone, and do not request another one."""
        self._state.emit(*self._containers.gang.part([task]))
        known = reopened_record(task)
        task.vacate()
        data: dict[str, Any] = {"tasks": {task.name: {"attempt": task.attempt, **known}}, "vacant": self.vacant}
        number = len(self.there(task.type))
        if self.wanted.get(task.type, 0) > number:
            self.wanted[task.type] = number
            data["resizing"] = {task.type: number}
        message = f"going on without {task.name}, until the queue has room to spare again"
        self._state.note("smaller", message, data=data)

    @property
    def vacant(self) -> list[str]:
        """The names of the vacant tasks, for the event log."""
        return [task.name for task in self._state.tasks if task.vacant]

    def come_down(self, reason: str) -> None:
        """Shrink types that use spare capacity to what the job needs, because it begins again.

        A user's request that is not complete stays open.
        """
        vacant = self.vacant
        if vacant:
            for task in self._state.tasks:
                task.occupy()
            self._state.note("occupied", f"{some(vacant)}: no place is kept vacant any more", data={"vacant": []})
        own = [name for name in self.sparing if name not in self.wanted or name in self.by_policy]
        self.want({name: self.needed(name) for name in own}, reason, by_policy=True)


def _goes_by_index(task: Task) -> int:
    return -task.index


def _goes_first(task: Task) -> tuple[bool, bool, bool, int]:
    requested = task.absent and task.state is TaskState.REQUESTED
    return not requested, not task.absent, not task.yields, -task.index


def _at_most(number: Optional[int]) -> str:
    return "as many as there is room for" if number is None else f"no more than {number} from now on"


class AdvanceNotices(Part):
    """The part of the session that handles advance notices, and requests checkpoints because of them."""

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float]) -> None:
        tasks = [self._containers.task_in(container_id) for container_id in container_ids]
        why = "the cluster wants containers back"
        new = self._yield([task for task in tasks if task], "preempting", why, seconds)
        if new and not self._sizes.give_back(new, why):  # the shrinking itself requests a checkpoint
            self._checkpoints.ask(_soon(why, seconds))

    def node_leaving(self, node: str, seconds: Optional[float]) -> None:
        tasks = [task for task in self._state.tasks if task.has_container and task.node == node]
        why = f"{node} is taken out of service"
        if self._yield(tasks, "node_leaving", why, seconds):
            self._checkpoints.ask(_soon(why, seconds))

    def checkpoint_requested(self, reason: str) -> None:
        asked = self._checkpoints.ask(reason)
        self._state.note("checkpoint_requested", reason if asked else f"{reason}; nobody runs who could make one")

    def _yield(self, tasks: Sequence[Task], event: str, why: str, seconds: Optional[float]) -> list[Task]:
        """Mark tasks whose containers the cluster takes back, which is not their nodes' fault.

        Return newly marked tasks.
        """
        new = [task for task in tasks if not task.yields]  # the cluster repeats its notices
        for task in new:
            task.yields = True
        if new:
            self._state.note(event, f"{_soon(why, seconds)}: {some(task.name for task in new)}")
        return new


def _soon(why: str, seconds: Optional[float]) -> str:
    return why if seconds is None else f"{why} in {seconds:.0f} s"

"""Allocation of containers for the gang, container sizes, and stages of task types.

The gang consists of the tasks that start together. A partly allocated gang may block another application, which may
hold the containers that the gang lacks. So the gang releases all containers after the allocation timeout, waits a
random time and repeats its requests.

A stage consists of task types that start once other types have reached a milestone. Types that wait for no other type
are the first stage, and start according to the job's ``start``. Containers for a waiting type are not requested, so
that blocked tasks hold no devices. A gang in a later stage is also allocated as a whole.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.resource_manager import ContainerRequest, Largest
from tony_provider.runtime.am.session.actions import Action, CancelRequests, RequestContainers
from tony_provider.runtime.am.session.session_state import Part, SessionContext, Task
from tony_provider.runtime.common.quantities import GPU, count, span
from tony_provider.runtime.jobspec.model import JobSpec, Memory, Milestone, Role, TaskSpec, in_cluster
from tony_provider.runtime.jobspec.placement import own_tags
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState

_LEAST_WAIT = 0.25  # shortest random wait as a fraction of the allocation timeout; the longest is the whole timeout


class Gang:
    """The requests for the gang's containers, and the time that the gang has waited for them.

    ``jitter`` returns random numbers from 0 to 1. Times are in seconds.
    """

    def __init__(self, job: JobSpec, tasks: Sequence[Task], sizes: ContainerSizes, jitter: Callable[[], float]) -> None:
        self._job = job
        self._tasks = list(tasks)  # the tasks that start together
        self._names = {task.name for task in tasks}
        self._sizes = sizes
        self._jitter = jitter
        self._keys = itertools.count(1)
        self._waiting: dict[int, Task] = {}
        self._others: dict[int, Task] = {}  # requests for tasks outside of the gang
        self._since = self._moved_at = 0.0
        self._give_back_at: Optional[float] = None
        self._ask_at: Optional[float] = None
        self._fewest: Optional[int] = None  # smallest number of unanswered requests so far

    @property
    def wanted(self) -> list[Task]:
        """The tasks that need a container."""
        return [task for task in self._tasks if not task.done and not task.waits_for_types and not task.unrequested]

    @property
    def complete(self) -> bool:
        return not self._waiting and all(task.container for task in self.wanted)

    @property
    def outstanding(self) -> tuple[int, ...]:
        """The keys of the unanswered requests."""
        return (*self._waiting, *self._others)

    def brings(self, task: Task) -> bool:
        """Return whether this task starts together with the gang."""
        return task.name in self._names

    def begin(self, tasks: Sequence[Task], now: float) -> None:
        """Make these tasks the gang and wait for all of their containers. See timeouts.queue."""
        self._tasks, self._names = list(tasks), {task.name for task in tasks}
        asked = {**self._waiting, **self._others}
        self._waiting = {key: task for key, task in asked.items() if self.brings(task)}
        self._others = {key: task for key, task in asked.items() if not self.brings(task)}
        self._since = self._moved_at = now
        self._fewest = self._give_back_at = self._ask_at = None
        lacking = [task for task in self.wanted if not task.has_container]
        if len(lacking) < len(self.wanted):  # a former application master received the other containers
            self._fewest, self._give_back_at = len(lacking), now + self._job.timeouts.allocation

    def join(self, tasks: Sequence[Task]) -> Optional[RequestContainers]:
        """Add tasks to the gang. Request their containers, unless the gang pauses its requests."""
        self._tasks += [task for task in tasks if not self.brings(task)]
        self._names |= {task.name for task in tasks}
        if self._ask_at is not None:
            return None
        if self._fewest is not None:
            self._fewest += len(tasks)
        return self.ask(tasks)

    def part(self, tasks: Sequence[Task]) -> list[Action]:
        """Remove tasks from the gang and withdraw their requests."""
        actions = [action for task in tasks for action in self.withdraw(task)]
        self._tasks = [task for task in self._tasks if task not in tasks]
        self._names -= {task.name for task in tasks}
        if self._fewest is not None:
            self._fewest = min(self._fewest, len(self._waiting))
        return actions

    def ask(self, tasks: Iterable[Task]) -> RequestContainers:
        """Request one container for each of the tasks."""
        requests = []
        for task in tasks:
            task.key = next(self._keys)
            (self._waiting if self.brings(task) else self._others)[task.key] = task
            requests.append(self._sizes.request(task.type, task.key))
        return RequestContainers(tuple(requests))

    def asked(self, key: int) -> Optional[Task]:
        """Return the task whose request has this key, or None."""
        return self._waiting.get(key) or self._others.get(key)

    def granted(self, key: int, now: float) -> Optional[Task]:
        """Record a granted request. Return its task, or None if the task no longer waits for a container."""
        other = self._others.pop(key, None)
        task = other or self._waiting.pop(key, None)
        if task is None:
            return None
        task.key = None
        if other:
            return task
        self._moved_at = now
        left = len(self._waiting)
        self._fewest = left if self._fewest is None else min(self._fewest, left)
        if self._give_back_at is None:
            self._give_back_at = now + self._job.timeouts.allocation
        return task

    def cancel(self) -> list[Action]:
        """Withdraw the requests for the gang."""
        keys = tuple(self._waiting)
        for task in self._waiting.values():
            task.key = None
        self._waiting.clear()
        return [CancelRequests(keys)] if keys else []

    def cancel_all(self) -> list[Action]:
        """Withdraw every request."""
        self._waiting.update(self._others)
        self._others.clear()
        return self.cancel()

    def withdraw(self, task: Task) -> list[Action]:
        """Withdraw the request for this task."""
        key, task.key = task.key, None
        if key is None:
            return []
        asked = self._waiting.pop(key, None) or self._others.pop(key, None)
        return [CancelRequests((key,))] if asked else []

    # ---- waiting for the whole gang ----------------------------------------------------------------------------

    def must_give_back(self, now: float) -> bool:
        """Return whether the job has held an incomplete gang for too long."""
        if self._give_back_at is None or now < self._give_back_at:
            return False
        if self._held:
            return True
        self._give_back_at = None  # all containers were lost in the meantime
        return False

    def starves(self, now: float) -> bool:
        """Return whether no container was granted during the last ``timeouts.allocation`` seconds."""
        return now - self._moved_at >= self._job.timeouts.allocation

    def pause(self, now: float) -> float:
        """Begin a pause after all containers were released. Return the seconds until the next request."""
        wait = self._job.timeouts.allocation * (_LEAST_WAIT + (1 - _LEAST_WAIT) * self._jitter())
        self._give_back_at, self._ask_at = None, now + wait
        return wait

    def may_ask_again(self, now: float) -> bool:
        """Return whether the pause is over. Returns True once for each pause."""
        if self._ask_at is None or now < self._ask_at:
            return False
        self._ask_at = None
        return True

    def timed_out(self, now: float) -> Optional[str]:
        """Return an error message with the missing containers if the queue timeout is over, or None."""
        limit = self._job.timeouts.queue
        if limit is None or now - self._since < limit:
            return None
        missing = [task for task in self.wanted if task.container is None]
        return (
            f"the queue had no room for {limit:g} s (timeouts.queue): at most "
            f"{self._most} of {self._total} were granted at the same time; missing now: "
            f"{self.describe_requests(missing)}. Request less, choose another queue or node label, or wait longer"
        )

    def describe(self, now: float) -> str:
        """Return one line that describes what the gang waits for."""
        if self._ask_at is not None:
            held = f"only {self._most} of {self._total} were granted; released them"
            return f"{held}, requesting again in {span(self._ask_at - now)}"
        missing = [task for task in self.wanted if task.container is None]
        return f"waiting for {len(missing)} of {self._total}: {self.describe_requests(missing)}"

    def describe_requests(self, tasks: Iterable[Task]) -> str:
        """Return the number and size of the containers that these tasks need, as text."""
        counts = Counter(task.type for task in tasks)
        return ", ".join(
            f"{number} x {name} ({descriptions.size(self._sizes.of(name), self._job.node_label)})"
            for name, number in counts.items()
        )

    @property
    def _most(self) -> int:
        """The largest number of containers that the gang has held at the same time."""
        return 0 if self._fewest is None else len(self.wanted) - self._fewest

    @property
    def _held(self) -> int:
        """The number of containers that the gang holds. Valid while the whole gang is requested."""
        return len(self.wanted) - len(self._waiting)

    @property
    def _total(self) -> str:
        return count(len(self.wanted), "container")


class ContainerSizes:
    """The present size of each task type's containers."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._specs = dict(job.tasks)
        self._tags = {
            name: own_tags(name, spec.placement) if job.placed_by_rules(name) else []
            for name, spec in job.tasks.items()
        }
        self._most: Optional[int] = None
        # Each size has its own priority, because older schedulers keep one size per priority. Priorities start at 1, in
        # the order of the task types.
        self._priorities: dict[tuple[object, ...], int] = {}
        for spec in job.tasks.values():
            self._priority(spec)

    def limit(self, largest: Largest) -> None:
        """Limit requests to the memory of the cluster's largest container."""
        self._most = largest.memory

    def of(self, task_type: str) -> TaskSpec:
        """Return the type's specification, with the present memory of its containers."""
        return self._specs[task_type]

    @property
    def raised(self) -> dict[str, int]:
        """Memory in MiB of each task type whose memory was raised, by type."""
        return {name: spec.memory for name, spec in self._specs.items() if spec.memory != self._job.tasks[name].memory}

    def restore(self, raised: Mapping[str, int]) -> None:
        """Restore the sizes of a former application master, as ``raised`` returned them."""
        for name, memory in raised.items():
            if name in self._specs:
                self._set(name, memory)

    def raise_memory(self, task_type: str) -> bool:
        """Give a task type more memory after an out-of-memory kill.

        Return False if the policy or the cluster forbids it.
        """
        step = self._job.restart.memory_step
        if step is None:
            return False
        now = self._specs[task_type].memory
        limit = self._job.restart.memory_limit or 2 * self._job.tasks[task_type].memory
        wanted = min(now + step, limit, self._most or limit)
        if wanted <= now:
            return False
        self._set(task_type, wanted)
        return True

    def request(self, task_type: str, key: int) -> ContainerRequest:
        spec = self._specs[task_type]
        resources = {name: amount.value for name, amount in spec.resources.items()}
        if spec.gpus:
            resources[GPU] = spec.gpus
        return ContainerRequest(
            key=key,
            priority=self._priority(spec),
            memory=spec.memory,
            vcores=spec.vcores,
            resources=resources,
            units={name: amount.units for name, amount in spec.resources.items() if amount.units},
            node_label=spec.node_label or self._job.node_label,
            placement=spec.placement,
            tags=self._tags[task_type],
        )

    def _set(self, task_type: str, memory: int) -> None:
        self._specs[task_type] = attrs.evolve(self._specs[task_type], memory=Memory(memory))

    def _priority(self, spec: TaskSpec) -> int:
        size = (spec.memory, spec.vcores, spec.gpus, tuple(sorted(spec.resources.items())), spec.node_label)
        return self._priorities.setdefault(size, len(self._priorities) + 1)


def requests_too_large(job: JobSpec, largest: Largest) -> Optional[str]:
    """Return all requests beyond the cluster's largest container, or None if every request fits."""
    problems = []
    for name, task in job.tasks.items():
        wanted = {"memory": (task.memory, largest.memory), "vcores": (task.vcores, largest.vcores)}
        if task.gpus:
            wanted["gpus"] = (task.gpus, largest.resources.get(GPU, 0))
        for resource, amount in task.resources.items():
            number = amount.counted_in(largest.units.get(resource, ""))
            wanted[f"resources.{resource}"] = (number, largest.resources.get(resource, 0))
        problems += [
            f"tasks.{name}.{key}: {number} is more than {most}, the cluster's limit for one container"
            for key, (number, most) in wanted.items()
            if number > most
        ]
    return "; ".join(problems) or None


_IN_WORDS = {
    Milestone.STARTED: "to start",
    Milestone.READY: "to be ready",
    Milestone.SUCCEEDED: "to succeed",
}


class Stages(Part):
    """Session component that starts task types once other types have reached the milestones they wait for."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._tasks = self._state.of_type
        self._all = {
            name: [_Wait(other, self._tasks[other], milestone) for other, milestone in after.items()]
            for name in self._state.job.tasks
            if (after := self._state.job.waits_for(name))
        }
        self._waiting = self._all  # types that had waiting tasks at the last check
        self._since: Optional[float] = None  # time since which types wait and no stage started; None if none waits

    def reset(self, tasks: Iterable[Task], types: Collection[str]) -> None:
        """Let these tasks wait again for tasks of ``types``, because these types restart from their beginning."""
        for task in tasks:
            task.waits_for_types = any(other in types for other in self._state.job.waits_for(task.type))
        self._waiting, self._since = self._all, None
        self._note_reset(types)

    def _note_reset(self, types: Collection[str]) -> None:
        """Record the present starts, so that the next application master does not count these tasks as lost.

        The event log has a single count for all tasks of a type.
        """
        starts = {name: start for name in types if (start := max(task.start for task in self._tasks[name]))}
        for name, start in starts.items():
            for task in self._tasks[name]:
                if not task.done:
                    task.start = task.start_at_reset = start
        if starts:
            self._state.note(
                "anew", f"{', '.join(starts)} restart from the beginning", data={"starts_at_reset": starts}
            )

    def check(self, now: float) -> None:
        """Start the next stage if its milestones are reached. Fail the job if they cannot be reached any more."""
        if not self._waiting or self._state.phase is JobState.FINISHING:
            return
        self._waiting = {name: waits for name, waits in self._waiting.items() if self._waits(name)}
        if self._state.phase is not JobState.RUNNING:
            self._check_hopeless(now)  # perhaps no task is left that could start the job
            return
        if due := [name for name, waits in self._waiting.items() if all(wait.over for wait in waits)]:
            self._since = None
            self._open([task for name in due for task in self._tasks[name] if task.waits_for_types], now)
        elif self._waiting:
            self._check_hopeless(now)
            self._check_time(now)

    def _open(self, tasks: Sequence[Task], now: float) -> None:
        names = ", ".join(dict.fromkeys(task.type for task in tasks))
        self._state.note("stage", f"{names}: all dependencies are met")
        for task in tasks:
            task.waits_for_types = False
        if any(in_cluster(task.role) for task in tasks) and not self._state.first_come:
            self._containers.ask_for(tasks, now)
            self._restarts.prepare_start(now)
        else:
            self._state.emit(self._containers.gang.ask(tasks))
            self._restarts.begin_each(tasks, now)

    def _check_hopeless(self, now: float) -> None:
        for name, waits in self._waiting.items():
            for wait in waits:
                lost = wait.hopeless
                if lost and lost.failure:
                    message = f"{name} waits for {wait.other}, and {lost.name} was given up: {lost.failure.message}"
                    self._completion.fail(attrs.evolve(lost.failure, message=message), now)
                    return

    def _check_time(self, now: float) -> None:
        self._since = now if self._since is None else self._since
        limit = self._state.job.timeouts.dependency
        if limit is not None and now - self._since >= limit and self._state.verdict is None:
            message = f"dependencies not met within {limit:g} s (timeouts.dependency): {'; '.join(self.describe())}"
            self._completion.fail(Failure(FailureKind.DEPENDENCY_TIMEOUT, message), now)

    def describe(self) -> Iterator[str]:
        """Yield which types wait for which milestones, as text."""
        for name, waits in self._waiting.items():
            missing = [f"{wait.other} {_IN_WORDS[wait.milestone]}" for wait in waits if not wait.over]
            if missing and self._waits(name):
                yield f"{name} waits for {' and '.join(missing)}"

    def _waits(self, name: str) -> bool:
        return any(task.waits_for_types for task in self._tasks[name])


@attrs.define
class _Wait:
    """A wait for the tasks of one type to reach a milestone."""

    other: str  # the awaited type
    tasks: Sequence[Task]
    milestone: Milestone
    _checked_from: int = 0  # index of a task that had not reached the milestone at the last check

    @property
    def over(self) -> bool:
        """Whether the wait is over.

        Called after every message of thousands of executors, so a check continues at the last index.
        """
        for _ in self.tasks:
            if not self._reached(self.tasks[self._checked_from % len(self.tasks)]):
                return False
            self._checked_from = (self._checked_from + 1) % len(self.tasks)
        return self.hopeless is None

    def _reached(self, task: Task) -> bool:
        if task.given_up or task.left_out or task.state is TaskState.SUCCEEDED:
            return True  # tolerated failures and left-out tasks do not block others
        if self.milestone is Milestone.SUCCEEDED or task.state is not TaskState.RUNNING:
            return False
        return self.milestone is Milestone.STARTED or (task.process is not None and task.process.ready)

    @property
    def hopeless(self) -> Optional[Task]:
        """A failed task that makes the wait endless: any failed sidecar, or the first task if all tasks have failed."""
        if self.tasks[0].role is Role.SIDECAR:
            return next((task for task in self.tasks if task.given_up), None)
        return self.tasks[0] if all(task.given_up for task in self.tasks) else None

"""Getting the containers of the whole gang, or none.

A gang that holds a part of what it needs blocks others, perhaps one that holds the missing part. So a partly allocated
gang gives everything back after the allocation timeout, waits a random time and asks again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.resource_manager import Container, ContainerRequest
from tony_provider.runtime.am.session.actions import Action, Cancel, Note, Release, Request
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.protocol.status import TaskState
from tony_provider.runtime.resource_names import GPU
from tony_provider.runtime.spec.model import JobSpec, TaskSpec

_LEAST_WAIT = 0.25  # of the allocation timeout; the most is once that


class Gang:
    """Knows which requests are out. ``jitter`` gives random numbers from 0 to 1. Times are in seconds."""

    def __init__(self, job: JobSpec, tasks: Sequence[Task], jitter: Callable[[], float]) -> None:
        self._job = job
        self._tasks = tasks
        self._jitter = jitter
        self._keys = itertools.count(1)
        self._waiting: dict[int, Task] = {}
        self._priorities = _priorities(job)
        self._started = 0.0
        self._give_back_at: Optional[float] = None
        self._ask_at: Optional[float] = None
        self._most = 0

    @property
    def complete(self) -> bool:
        return all(task.container for task in self._tasks)

    @property
    def outstanding(self) -> tuple[int, ...]:
        """Keys of the requests that were not answered."""
        return tuple(self._waiting)

    def start(self, now: float) -> list[Action]:
        self._started = now
        return [self.ask(self._tasks)]

    def ask(self, tasks: Iterable[Task]) -> Request:
        """Ask for one container for each of the tasks."""
        requests = []
        for task in tasks:
            task.key = next(self._keys)
            self._waiting[task.key] = task
            requests.append(self._request(task, task.key))
        return Request(tuple(requests))

    def granted(self, key: int, container: Container, now: float) -> Optional[Task]:
        """The task that this container is for; None when nobody waits for it any more."""
        task = self._waiting.pop(key, None)
        if task is None:
            return None
        task.key, task.container, task.state = None, container, TaskState.ALLOCATED
        task.container_ended = False
        held = sum(1 for each in self._tasks if each.container)
        self._most = max(self._most, held)
        if self._give_back_at is None:
            self._give_back_at = now + self._job.timeouts.allocation
        return task

    def cancel(self) -> list[Action]:
        """Withdraw every request."""
        keys = self.outstanding
        for task in self._waiting.values():
            task.key = None
        self._waiting.clear()
        return [Cancel(keys)] if keys else []

    def withdraw(self, task: Task) -> list[Action]:
        """Do without a container for this task."""
        key, task.key = task.key, None
        if key is None or self._waiting.pop(key, None) is None:
            return []
        return [Cancel((key,))]

    def tick(self, now: float) -> list[Action]:
        """Give back and ask again, as time goes by. Only before the gang is complete."""
        if self._ask_at is not None:
            if now < self._ask_at:
                return []
            self._ask_at = None
            return [Note("asking_again", f"asking again for {self._words(self._tasks)}"), self.ask(self._tasks)]
        if self._give_back_at is None or now < self._give_back_at:
            return []
        return self._give_back(now)

    def timed_out(self, now: float) -> Optional[str]:
        """What was missing, once the queue timeout is over."""
        limit = self._job.timeouts.queue
        if limit is None or now - self._started < limit:
            return None
        missing = [task for task in self._tasks if task.container is None]
        return (
            f"no room in the queue for {limit:g} s (timeouts.queue): of {words.count(len(self._tasks), 'container')} "
            f"at most {self._most} were granted at a time; missing now: {self._words(missing)}. "
            "Ask for less, choose another queue or node label, or wait longer"
        )

    def describe(self, now: float) -> str:
        """One line for people."""
        if self._ask_at is not None:
            return (
                f"only {self._most} of {words.count(len(self._tasks), 'container')} were granted; gave them back, "
                f"asking again in {max(0.0, self._ask_at - now):.0f} s"
            )
        missing = [task for task in self._tasks if task.container is None]
        return f"waiting for {len(missing)} of {words.count(len(self._tasks), 'container')}: {self._words(missing)}"

    def _give_back(self, now: float) -> list[Action]:
        held = [task for task in self._tasks if task.container]
        if not held:  # all were lost meanwhile
            self._give_back_at = None
            return []
        wait = self._job.timeouts.allocation * (_LEAST_WAIT + (1 - _LEAST_WAIT) * self._jitter())
        message = (
            f"{len(held)} of {words.count(len(self._tasks), 'container')} were granted within "
            f"{self._job.timeouts.allocation:g} s; giving them back, asking again in {wait:.0f} s"
        )
        release = Release(tuple(task.container.id for task in held if task.container))
        for task in held:
            task.container, task.state = None, TaskState.REQUESTED
        self._give_back_at, self._ask_at = None, now + wait
        return [*self.cancel(), release, Note("given_back", message)]

    def _request(self, task: Task, key: int) -> ContainerRequest:
        spec = task.spec
        resources = dict(spec.resources)
        if spec.gpus:
            resources[GPU] = spec.gpus
        return ContainerRequest(
            key=key,
            priority=self._priorities[_size(spec)],
            memory=spec.memory,
            vcores=spec.vcores,
            resources=resources,
            node_label=spec.node_label or self._job.node_label,
        )

    def _words(self, tasks: Iterable[Task]) -> str:
        counts = Counter(task.type for task in tasks)
        return ", ".join(
            f"{number} x {name} ({words.size(self._job.tasks[name], self._job.node_label)})"
            for name, number in counts.items()
        )


def _size(spec: TaskSpec) -> tuple[object, ...]:
    return (spec.memory, spec.vcores, spec.gpus, tuple(sorted(spec.resources.items())), spec.node_label)


def _priorities(job: JobSpec) -> dict[tuple[object, ...], int]:
    """One priority for each size, since older schedulers keep one size per priority; as specified, from 1 on."""
    priorities: dict[tuple[object, ...], int] = {}
    for spec in job.tasks.values():
        priorities.setdefault(_size(spec), len(priorities) + 1)
    return priorities

"""What the parts of the session share: the tasks, and where the job is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.am.session.actions import Action, Note, Verdict
from tony_provider.runtime.am.session.state import lifecycle
from tony_provider.runtime.am.session.state.lifecycle import Lifecycle
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.deciders import deciding_types
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskAddress
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.protocol.export_status import ExportedModel, ExportRequest
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.ranks import in_cluster, leading_type
from tony_provider.runtime.spec.model import JobSpec, MirrorScope, StartRule


@attrs.define
class Generation:
    """One rendezvous of the gang."""

    number: int = 0  # 0: there was none yet
    resume: Optional[ResumePoint] = None  # None: from the beginning, or not known
    addresses: dict[str, TaskAddress] = attrs.field(factory=dict)  # by task; the newest of those that take part
    without: frozenset[str] = frozenset()  # tasks that do not take part
    _cluster: Optional[ClusterSpec] = attrs.field(default=None, init=False, eq=False)  # until an address changes
    _listed: list[TaskAddress] = attrs.field(factory=list, init=False, eq=False)  # what it is made of
    _places: dict[str, int] = attrs.field(factory=dict, init=False, eq=False)  # of the tasks in there

    def enter(self, name: str, address: TaskAddress) -> None:
        if self.addresses.get(name) == address:
            return
        self.addresses[name] = address
        self._cluster = None
        if name in self._places:
            self._listed[self._places[name]] = address

    def cluster(self, tasks: Callable[[], Sequence[Task]]) -> ClusterSpec:
        """One and the same as long as it is: it is large, and so is what is made of it.

        ``tasks`` gives those that belong to it. It is asked once: where tasks begin by the thousand, each with an
        address of its own, the others' stay the same.
        """
        if not self._listed:
            for place, task in enumerate(tasks()):
                self._places[task.name] = place
                self._listed.append(self.addresses.get(task.name) or _without_address(task))
        if self._cluster is None:
            self._cluster = ClusterSpec(self.number, tuple(self._listed))
        return self._cluster


def _without_address(task: Task) -> TaskAddress:
    return TaskAddress(task.type, task.index, task.role)


class SessionState:
    """``out`` are the actions that were not taken yet."""

    def __init__(self, job: JobSpec, framework: Framework, epoch: float) -> None:
        """``epoch`` + the session's time = seconds since the epoch."""
        decisive = deciding_types(job, framework)
        self.job = job
        self.epoch = epoch
        self.successes: set[str] = set()  # names of the tasks that decide and have succeeded
        self._every = [  # also those that the job may be resized to
            Task(
                name,
                index,
                role,
                spec,
                name in decisive,
                spec.restart or framework.scope(role),
                self.successes,
            )
            for name, spec in job.tasks.items()
            for role in [job.role(name)]
            for index in range(spec.most_instances)
        ]
        self.instances = {name: spec.instances for name, spec in job.tasks.items()}  # as many as there are at present
        self.tasks: list[Task] = []
        self.of_type: dict[str, list[Task]] = {name: [] for name in job.tasks}
        self.first_come = job.start is StartRule.FIRST_COME
        for task in self._every:
            task.waits = bool(job.waits_for(task.type))
        self.by_name = {task.name: task for task in self._every}
        self.resize({})
        self._lifecycle = Lifecycle("the job", lifecycle.JOB, JobState.WAITING)
        self.generation = Generation()
        self.checkpoint: Optional[ResumePoint] = None  # the newest that was committed
        self.checkpoint_problem = ""  # the reason if no checkpoint can be stored
        self.export: Optional[ExportedModel] = None  # the newest that is on the store
        self.export_request: Optional[ExportRequest] = None  # that is not answered
        self.export_problem = ""  # why the newest is not on the store; empty: it is, or there is none
        self.went_back = ""  # URI of an older checkpoint than the newest one, from which the job resumed last
        self.restarts = 0
        self.verdict: Optional[Verdict] = None
        self.parts: tuple[OutputPart, ...] = ()  # of outputs: those that count, once all that decide have succeeded
        self.warnings: list[str] = []
        self.quota_warning = ""  # that a quota may soon prevent checkpoints
        self.out: list[Action] = []

    @property
    def phase(self) -> JobState:
        return self._lifecycle.state

    def enter(self, phase: JobState) -> None:
        """Raises ImpossibleTransitionError."""
        self._lifecycle.enter(phase)

    def resize(self, instances: Mapping[str, int]) -> None:
        """Have so many tasks of these types from now on. Whoever holds ``tasks`` or ``of_type`` sees it."""
        self.instances.update(instances)
        self.tasks[:] = [task for task in self._every if self.has(task)]
        for name, tasks in self.of_type.items():
            tasks[:] = [task for task in self.tasks if task.type == name]

    def beyond(self, task_type: str, instances: int) -> list[Task]:
        """The tasks of a type, also of those that it may be resized to, that it has not with so many."""
        return [task for task in self._every if task.type == task_type and task.index >= instances]

    def has(self, task: Task) -> bool:
        """Whether the job has this task at present, which it may be resized to."""
        return task.index < self.instances[task.type]

    @property
    def finished(self) -> bool:
        return self.phase.is_final

    @property
    def last_copies(self) -> float:
        """Seconds that an executor may take for its last copies of checkpoints."""
        return 0.0 if self.job.checkpoint.mirror is MirrorScope.OFF else self.job.timeouts.checkpoint

    def cluster(self) -> ClusterSpec:
        """The newest generation."""
        return self.generation.cluster(self.members)

    def members(self) -> list[Task]:
        """Of the newest generation, also those that a recovery has no address of yet. Ranks follow."""
        if not self.generation.number:
            return []
        return [task for task in self.tasks if task.name not in self.generation.without]

    @property
    def leader(self) -> Optional[Task]:
        """The task that speaks for the job: rank 0 of the newest generation, or of the first one to come."""
        leading, without = leading_type(self.job.roles), self.generation.without
        return next((task for task in self.tasks if task.type == leading and task.name not in without), None)

    def enter_cluster(self, task: Task) -> None:
        """Others are to look for this task where its executor is now."""
        self.generation.enter(task.name, TaskAddress(task.type, task.index, task.role, task.host, dict(task.ports)))

    @property
    def before_the_gang(self) -> set[str]:
        """The task types that those which begin together wait for, and what these wait for."""
        before: set[str] = set()
        left = [name for name, role in self.job.roles.items() if in_cluster(role)]
        while left:
            new = self.job.waits_for(left.pop()).keys() - before
            before |= new
            left += new
        return before

    def emit(self, *actions: Optional[Action]) -> None:
        self.out += [action for action in actions if action is not None]

    def note(
        self, event: str, message: str, task: Optional[Task] = None, data: Optional[Mapping[str, Any]] = None
    ) -> None:
        """``data``: see History."""
        self.out.append(Note(event, message, task.name if task else None, dict(data or {})))

    def taken(self) -> list[Action]:
        """Hand the actions over."""
        out, self.out = self.out, []
        return out

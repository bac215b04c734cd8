"""Restart policy: whether and when failed tasks restart, and which tasks restart together.

Contains the restart budget, the detection of repeated failures and of progress, the search for a failure's root cause,
and the restart groups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Optional, Union

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.session.failures import KILL_SIGNALS
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.frameworks.task_type_rules import takes_gang_along
from tony_provider.runtime.jobspec.model import JobSpec, RestartPolicy, RestartScope, Role, in_cluster
from tony_provider.runtime.protocol.status import Failure, FailureKind, TaskState

FREE_MOVES = 3
"""Limit of restarts outside the budget that move a task away from a node which lacks something."""


@attrs.frozen
class RestartAt:
    """The decision to restart."""

    delay: float = 0.0  # seconds to wait before the restart


@attrs.frozen
class NoRestart:
    """The decision not to restart."""

    why: str = ""  # reason in addition to the failure's message; empty if there is none
    permanent: bool = False  # another application would fail in the same way
    repeated: bool = False  # the same failure has occurred too often


Decision = Union[RestartAt, NoRestart]


def decide(
    failure: Failure,
    scope: RestartScope,
    policy: RestartPolicy,
    budget: RestartBudget,
    now: float,
    *,
    times: int = 1,
    moves: int = 0,
    recurs: str = "",
) -> Decision:
    """Decide whether a failed task with this restart scope restarts. Use one restart of the budget if necessary.

    ``times`` is the number of equal failures since the last progress, see RepeatedFailures. ``moves`` is the number of
    times since the last progress that a task has left a node because the node lacked something. ``recurs`` is the
    reason if another application would fail in the same way, see ``certain_to_recur``.
    """
    # not an exit code of the executor itself
    if failure.kind in (FailureKind.USER, FailureKind.NODE) and failure.exit_code in policy.permanent_exit_codes:
        recurs = recurs or "this exit code is permanent (restart.permanent_exit_codes)"
    if recurs or scope is RestartScope.NEVER:
        return NoRestart(recurs, permanent=bool(recurs))
    if failure.kind is FailureKind.UPLOAD:  # the training is complete; another application may upload its files
        return NoRestart()
    if failure.kind is FailureKind.PREEMPTED:  # caused by the cluster, not by the job
        return RestartAt()
    if failure.kind is FailureKind.NODE and moves <= FREE_MOVES:
        return RestartAt()
    if times > policy.same_failure:
        return NoRestart(
            f"the same failure {times} times, without progress in between (restart.same_failure)",
            repeated=True,
        )
    delay = budget.spend(now)
    if delay is not None:
        return RestartAt(delay)
    restarts = count(policy.budget, "restart")
    return NoRestart(f"given up after {restarts} without progress (restart.budget)" if policy.budget else "")


class RestartBudget:
    """The restarts that the job's restart policy still permits.

    Times are on the session's clock, in seconds.
    """

    def __init__(self, policy: RestartPolicy, times: Iterable[float] = ()) -> None:
        """``times`` lists the times of the restarts so far, oldest first."""
        self._policy = policy
        self.times = list(times)

    def spend(self, now: float) -> Optional[float]:
        """Use one restart. Return the seconds to wait before it, or None if the budget is exhausted."""
        self.times = [time for time in self.times if now - time < self._policy.window]
        spent = len(self.times)
        if spent >= self._policy.budget:
            return None
        self.times.append(now)
        return self._wait(spent)

    def progress(self) -> None:
        """Forget the restarts so far, because the job has made progress."""
        self.times = []

    def _wait(self, spent: int) -> float:
        if not spent:
            return 0.0
        doubled = self._policy.backoff * 2.0 ** min(spent - 1, 64)
        return min(doubled, self._policy.max_backoff)


@attrs.frozen
class SeenFailure:
    """The time and the recognised kind of a program's failure."""

    time: float
    what: str  # text from ``recognise``, which is the same for equal failures
    step: Optional[int] = None  # newest step that the processes had reported; None if they reported none


class RepeatedFailures:
    """The failures since the last progress, see GroupProgress.

    Times are on the session's clock, in seconds.
    """

    def __init__(self, policy: RestartPolicy, seen: Iterable[SeenFailure] = ()) -> None:
        """``seen`` lists the failures so far, oldest first."""
        self._policy = policy
        self.seen = list(seen)

    def add(self, failure: Failure, task_type: str, step: Optional[int], now: float) -> int:
        """Record a failure. Return the number of equal failures within the window, including this one.

        ``step`` is the newest step that the processes have reported. Failures after different steps do not count
        as equal, because their cause is probably outside the program, such as the network. Return 0 if the program did
        not cause the failure.
        """
        self.seen = [each for each in self.seen if now - each.time < self._policy.window]
        what = recognise(failure, task_type)
        if what is None:
            return 0
        self.seen.append(SeenFailure(now, what, step))
        return sum(each.what == what and (None in (step, each.step) or step == each.step) for each in self.seen)

    def forget(self) -> None:
        """Forget all failures, because the program has made progress."""
        self.seen = []


def recognise(failure: Failure, task_type: str) -> Optional[str]:
    """Return a text that is the same whenever a task of this type fails in this way.

    Return None if the program has not caused the failure. The text names the type and not the task, because in a gang
    that runs one program, each task may be the first to fail.
    """
    if failure.kind is not FailureKind.USER:
        return None
    signal = failure.signal or contract.killing_signal(failure.exit_code or 0)
    if signal in KILL_SIGNALS:
        return None
    how = f"signal {failure.signal}" if failure.signal else f"exit {failure.exit_code}"
    _, _, output = failure.message.partition("\n")
    digest = hashlib.sha256(descriptions.essence(output).encode("utf-8", "replace")).hexdigest()
    return f"{task_type} {how} {digest[:16]}"


LONGEST_START = 60.0  # seconds; a checkpoint of a younger process may contain only its arguments or initial state


@attrs.frozen
class CommittedSave:
    """Facts about a committed checkpoint that show whether its tasks have made progress."""

    tasks: Collection[str]
    content_step: Optional[int]  # step that its files contain; None if only a file name shows a step
    is_new: bool  # it has files whose content is not in the previous checkpoint
    process_seconds: float  # from the start of the processes until they saved


@attrs.define
class GroupProgress:
    """The highest steps of a restart group so far, across all starts.

    Reports and files may count different things, such as steps and epochs, so each has its own highest step.
    """

    reported: int = 0
    saved: int = 0

    def has_reported(self, step: int) -> bool:
        """Record a reported step. Return whether it is progress."""
        before, self.reported = self.reported, max(self.reported, step)
        return self.reported > before

    def has_saved(self, save: CommittedSave) -> bool:
        """Record a committed checkpoint. Return whether it is progress. Step numbers in file names are ignored."""
        if save.content_step is None:
            return save.is_new and save.process_seconds >= LONGEST_START
        before, self.saved = self.saved, max(self.saved, save.content_step)
        return self.saved > before


DOUBT = 0.5  # if YARN kills both, the executor ends at most this many seconds after its user process
COMPARISON = 2.0  # seconds within which tasks of one type that start together fail for a common cause
SETTLE = 5.0  # seconds to wait after a failure for reports of earlier failures, or after a stall for stacks

_LOST = (FailureKind.CONTAINER_LOST, FailureKind.PREEMPTED)


@attrs.define
class _Recorded:
    failure: Failure
    began: float  # time of its first symptom
    since: float  # time when it was recorded
    doubtful: bool
    peers: Sequence[Task]  # tasks on other nodes; if they also fail, the node of this task is not the cause


class RootCause:
    """Collects the failures of tasks that depend on each other. Times are on the session's clock, in seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._recorded: dict[str, _Recorded] = {}

    @property
    def pending(self) -> bool:
        return bool(self._recorded)

    @property
    def reason(self) -> str:
        """The message of the failure that was reported first. It may not be the cause."""
        return next((recorded.failure.message for recorded in self._recorded.values()), "")

    @property
    def kinds(self) -> set[FailureKind]:
        return {recorded.failure.kind for recorded in self._recorded.values()}

    @property
    def compares(self) -> bool:
        """Whether the decision waits for peers that may fail for the same cause. Meanwhile, the peers keep running."""
        return any(recorded.peers for recorded in self._recorded.values())

    def failed(
        self, task: Task, failure: Failure, now: float, *, doubtful: bool = False, peers: Sequence[Task] = ()
    ) -> None:
        """Record a failure.

        ``doubtful``: a signal has ended the process. The end of its container may show the real reason, so the decision
        waits for that end. ``peers``: the decision also waits for these tasks to fail in the same way.
        """
        task.fail(failure, TaskState.LOST if failure.kind in _LOST else TaskState.FAILED)
        began = now if task.first_symptom_at is None else task.first_symptom_at
        self._recorded[task.name] = _Recorded(failure, began, now, doubtful, peers)

    def settled(self, task: Task, better: Optional[Failure]) -> bool:
        """Record the end of a failed task's container. Return whether the decision has waited for it.

        ``better`` replaces the recorded failure if the container's end shows the real reason.
        """
        recorded = self._recorded.get(task.name)
        if recorded is None or not recorded.doubtful:
            return False
        recorded.doubtful = False
        if better:
            task.failure = recorded.failure = better
        return True

    def cause(self, now: float) -> Optional[Task]:
        """Return the task that failed first, or None if that is not known yet.

        A task whose stream broke before another task failed may be the cause, so the decision waits for its report.
        """
        if not self._recorded:
            return None
        first = min(recorded.since for recorded in self._recorded.values())
        if now < first + SETTLE and any(task.silent for task in self._tasks):
            return None
        if any(self._in_doubt(task, now) for task in self._tasks):
            return None
        if FailureKind.STALLED in self.kinds and now < first + SETTLE and any(map(_owes_stacks, self._tasks)):
            return None
        began = {name: recorded.began for name, recorded in self._recorded.items()}
        return min((task for task in self._tasks if task.name in began), key=lambda task: began[task.name])

    def _in_doubt(self, task: Task, now: float) -> bool:
        recorded = self._recorded.get(task.name)
        if recorded and now < recorded.since + COMPARISON and any(peer.runs for peer in recorded.peers):
            return True
        if recorded is None or not recorded.doubtful:
            return False
        return now < recorded.since + (DOUBT if task.connected else SETTLE)

    def reset(self) -> None:
        """Forget the failures after the decision about them."""
        self._recorded.clear()


def _owes_stacks(task: Task) -> bool:
    """Return whether the executor has yet to send the stacks of a task's process."""
    process = task.process
    if process is None or process.stacks is not None or not process.runs:
        return False
    return process.stop_by is not None and task.connected


GANG = "gang"


@attrs.define
class ResumeChoice:
    """A request for a resume point, and its answer."""

    generation: int  # generation that resumes from the chosen point
    made: bool = False
    resume: Optional[ResumePoint] = None  # None if no checkpoint exists


@attrs.frozen
class SuspectResume:
    """A repeated failure of processes that resumed from a checkpoint. Only an older checkpoint permits a restart."""

    task: Task
    failure: Failure  # failure to report if no older checkpoint exists, with the reason to give up
    uri: str  # URI of the checkpoint


@attrs.define
class Restart:
    """A start that is being prepared: processes stop, containers are replaced, the resume point is chosen."""

    reason: str
    members: list[Task]
    not_before: Optional[float] = None  # earliest time of the start; None until the failure's cause is known
    choice: Optional[ResumeChoice] = None
    checked_from: int = 0  # index of the member that was not ready at the last check


@attrs.define(eq=False)
class RestartGroup:
    """Tasks that restart together, with their failures and restarts so far."""

    name: str
    members: list[Task]
    root_cause: RootCause
    budget: RestartBudget
    repeats: RepeatedFailures
    progress: GroupProgress = attrs.field(factory=GroupProgress)
    restart: Optional[Restart] = None
    decided: bool = False  # the event log contains the decision to restart, but not yet the restart
    damaged: int = 0  # number of consecutive damaged resume points
    moves: int = 0  # number of times since the last progress that a task left a node which lacked something
    suspicions: set[str] = attrs.field(factory=set)  # problems that made tasks leave nodes since the last progress
    suspect: Optional[SuspectResume] = None  # set if the next restart must not use this checkpoint

    @property
    def is_gang(self) -> bool:
        return self.name == GANG

    @property
    def has_failed(self) -> bool:
        """Whether the group has had failures or restarts since its last progress."""
        return bool(self.budget.times or self.repeats.seen or self.damaged or self.moves)

    def forget_start(self) -> None:
        """Forget failures and a start that was being prepared."""
        self.restart = self.suspect = None
        self.root_cause.reset()


class RestartGroups:
    """All restart groups of a job: the gang, and each task that restarts alone."""

    def __init__(self, job: JobSpec, tasks: list[Task]) -> None:
        def group(name: str, members: list[Task]) -> RestartGroup:
            return RestartGroup(
                name, members, RootCause(members), RestartBudget(job.restart), RepeatedFailures(job.restart)
            )

        along = {task.name: takes_gang_along(job, task.role, task.scope) for task in tasks}
        self.gang = group(GANG, [task for task in tasks if in_cluster(task.role) or along[task.name]])
        self._own = {task.name: group(task.name, [task]) for task in tasks if not along[task.name]}
        self.every = [self.gang, *self._own.values()]

    def of(self, task: Task) -> RestartGroup:
        """Return the group that restarts if this task fails."""
        return self._own.get(task.name, self.gang)

    def set_tasks(self, tasks: Sequence[Task]) -> None:
        """Set the tasks of the gang after a resize. Added or removed tasks never restart alone."""
        self.gang.members[:] = [task for task in tasks if self._is_member(task)]

    @property
    def gang_has_succeeded(self) -> bool:
        """Whether all members that can succeed have done so. Then the gang never restarts, but later types may run."""
        if self.gang.restart:
            return False
        members = [task for task in self.gang.members if task.role is not Role.PS and not task.left_out]
        return bool(members) and all(task.done or task.state is TaskState.SUCCEEDED for task in members)

    def is_needless(self, task: Task) -> bool:
        """Return whether the task is no longer needed, because its gang has succeeded with or without it."""
        return self._is_member(task) and self.gang_has_succeeded

    def _is_member(self, task: Task) -> bool:
        """Return whether the task belongs to the gang. Tasks of the cluster do, even if they restart alone."""
        return in_cluster(task.role) or task.name not in self._own

    def preparing(self, task: Task) -> Optional[RestartGroup]:
        """Return the group that prepares a start of this task, or None."""
        for group in (self.gang, self.of(task)):
            if group.restart and task in group.restart.members:
                return group
        return None

"""Possible state transitions of the job, its tasks and their containers, each with its reason.

Only ``StateMachine`` changes a state, so no other transitions occur. docs/reference/states.md shows the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

import attrs

from tony_provider.runtime.protocol.status import JobState, TaskState, Transition

S = TypeVar("S", bound=Enum)
Transitions = Mapping[S, Mapping[S, str]]
"""Maps each state to its possible next states, each with the reason of the transition."""


class ContainerState(str, Enum):
    """The state of a task's container or container request."""

    NONE = "NONE"  # the task has no container; one is requested or will be requested
    LAUNCHED = "LAUNCHED"  # an executor was started in it
    UNUSED = "UNUSED"  # the task needs no more containers
    ENDED = "ENDED"  # the container has ended or was given up


class ImpossibleTransitionError(RuntimeError):
    """An impossible state transition: an error of the session, not of a job."""


_STOPPED = "the job has ended"
_NOT_TO_BE_HAD = "no container is available, and the gang continues without it"
_START = "its user process is ordered"
_SUSPENDED = "the job is suspended"
_OVER = "all containers have ended or sent their last message"

JOB: Transitions[JobState] = {
    JobState.WAITING: {
        JobState.STARTING: "all containers of the gang were granted",
        JobState.RECOVERING: "the application master is not the first one of its application",
        JobState.SUSPENDED: _SUSPENDED,
        JobState.FINISHING: "the verdict is known",
    },
    JobState.STARTING: {
        JobState.RUNNING: "all executors have registered: a generation begins",
        JobState.WAITING: "a lost container was not replaced in time: all containers are released",
        JobState.SUSPENDED: _SUSPENDED,
        JobState.FINISHING: "the verdict is known",
    },
    JobState.RUNNING: {
        JobState.RESTARTING: "the gang restarts",
        JobState.WAITING: "the dependencies of a gang are met: its containers are requested",
        JobState.SUSPENDED: _SUSPENDED,
        JobState.FINISHING: "the verdict is known, or all tasks that decide have succeeded",
    },
    JobState.RESTARTING: {
        JobState.RUNNING: "the next generation begins",
        JobState.WAITING: "a lost container was not replaced in time: all containers are released",
        JobState.SUSPENDED: _SUSPENDED,
        JobState.FINISHING: "the verdict is known",
    },
    JobState.SUSPENDED: {
        JobState.WAITING: "the job is resumed: its containers are requested",
        JobState.RUNNING: "the job is resumed, and the only remaining tasks are those that waited for others",
        JobState.FINISHING: "the verdict is known",
    },
    JobState.RECOVERING: {
        JobState.RUNNING: "executors with user processes have reconnected",
        JobState.STARTING: "all executors of the gang have reconnected, but no user process had started yet",
        JobState.SUSPENDED: "the job is suspended, and no task runs any more",
        JobState.WAITING: "no executor has reconnected, or only some of a gang that had not started yet",
        JobState.FINISHING: "the verdict is known",
    },
    JobState.FINISHING: {
        JobState.SUCCEEDED: _OVER,
        JobState.FAILED: _OVER,
        JobState.KILLED: _OVER,
    },
}

TASK: Transitions[TaskState] = {
    TaskState.REQUESTED: {
        TaskState.STARTING: "a container was granted, and its executor is launched",
        TaskState.REGISTERED: "its executor has reconnected to a new application master",
        TaskState.SUCCEEDED: "the records of a former application master contain its success",
        TaskState.FAILED: "no container is available for it",
        TaskState.LOST: _NOT_TO_BE_HAD,
        TaskState.STOPPED: _STOPPED,
    },
    TaskState.STARTING: {
        TaskState.REGISTERED: "its executor has registered",
        TaskState.REQUESTED: "the container was lost or released",
        TaskState.FAILED: "no executor registers, and another container would not help",
        TaskState.LOST: "the container was lost, and another one would not help",
        TaskState.STOPPED: _STOPPED,
    },
    TaskState.REGISTERED: {
        TaskState.RUNNING: "its user process has started",
        TaskState.REQUESTED: "another container is requested",
        TaskState.SUCCEEDED: "its user process succeeded, which a former application master had started",
        TaskState.FAILED: "its user process could not be started",
        TaskState.LOST: "the container was lost",
        TaskState.STOPPED: _STOPPED,
    },
    TaskState.RUNNING: {
        TaskState.REGISTERED: "its user process was stopped, and a new one will start",
        TaskState.REQUESTED: "another container is requested",
        TaskState.SUCCEEDED: "its user process succeeded",
        TaskState.FAILED: "its user process failed",
        TaskState.LOST: "the container was lost",
        TaskState.STOPPED: _STOPPED,
    },
    TaskState.SUCCEEDED: {
        TaskState.REGISTERED: _START,
        TaskState.REQUESTED: "another container is requested, to restart with the gang",
        TaskState.FAILED: "it is a parameter server, and ended while other tasks still needed it",
    },
    TaskState.FAILED: {
        TaskState.REGISTERED: "it restarts in its container",
        TaskState.REQUESTED: "another container is requested",
        TaskState.LOST: "the container was lost before the failure was handled",
    },
    TaskState.LOST: {
        TaskState.REGISTERED: "it restarts, because its container still exists",
        TaskState.REQUESTED: "another container is requested",
        TaskState.FAILED: "it is given up, and the job continues",
    },
}

CONTAINER: Transitions[ContainerState] = {
    ContainerState.NONE: {
        ContainerState.LAUNCHED: "the cluster granted it, or a former application master's executor has reconnected",
        ContainerState.UNUSED: "the task does not need a container any more",
    },
    ContainerState.LAUNCHED: {
        ContainerState.ENDED: "it has ended, or was given up",
    },
    ContainerState.UNUSED: {
        ContainerState.NONE: "another container is requested",
    },
    ContainerState.ENDED: {
        ContainerState.NONE: "another container is requested",
        ContainerState.LAUNCHED: "a former application master launched a newer one, and its executor has reconnected",
    },
}


MOST_TRANSITIONS = 100  # limit of the kept transitions of the job, or of one task and its containers


@attrs.define
class Occasion:
    """The event that the session is handling, for the transitions that it causes."""

    epoch: float = 0.0  # the session's time 0, in seconds since the Unix epoch
    now: float = 0.0  # the session's time, in seconds
    event: type = object


@attrs.define
class Story:
    """The newest transitions of the job, or of one task and its containers, oldest first."""

    _occasion: Occasion
    transitions: list[Transition] = attrs.field(factory=list)

    def add(self, subject: str, before: Enum, after: Enum, why: str) -> None:
        at = self._occasion
        time_ms = round((at.epoch + at.now) * 1000)
        self.transitions.append(Transition(time_ms, subject, before.value, after.value, why, at.event.__name__))
        del self.transitions[:-MOST_TRANSITIONS]


class StateMachine(Generic[S]):
    """A state that changes only as its table allows. Entering the present state again changes nothing."""

    def __init__(self, name: str, transitions: Transitions[S], beginning: S, story: Story) -> None:
        """``name`` identifies the owner of the state in error messages and in the story."""
        self._name = name
        self._transitions = transitions
        self._state = beginning
        self._story = story

    @property
    def state(self) -> S:
        return self._state

    def enter(self, state: S, detail: str = "") -> None:
        """Change the state. ``detail`` is added to the table's reason. Raises ImpossibleTransitionError."""
        if state is self._state:
            return
        why = self._transitions.get(self._state, {}).get(state)
        if why is None:
            raise ImpossibleTransitionError(f"{self._name}: {self._state.value} cannot become {state.value}")
        self._story.add(self._name, self._state, state, f"{why}: {detail}" if detail else why)
        self._state = state

"""A cluster and its executors as the session sees them: carries actions out in memory and keeps account of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tony_provider.runtime.am.resource_manager import Container, ContainerRequest
from tony_provider.runtime.am.session.actions import (
    Action,
    Cancel,
    Finish,
    LaunchTask,
    Note,
    Release,
    Request,
    SendRendezvous,
    ShutdownTask,
    Verdict,
)
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.task import Beat, ProcessEnd
from tony_provider.runtime.protocol.status import TaskState
from tony_provider.runtime.spec.model import Duration, JobSpec, TaskSpec, Timeouts


def job(tasks: Mapping[str, int], **timeouts: float) -> JobSpec:
    return JobSpec(
        framework="standalone",
        tasks={name: TaskSpec(command="true", instances=count) for name, count in tasks.items()},
        timeouts=Timeouts(**{name: Duration(value) for name, value in timeouts.items()}),
    )


class World:
    def __init__(self, spec: JobSpec, decisive: Sequence[str], *, jitter: float = 0.5, nodes: int = 4) -> None:
        self.session = Session(spec, decisive=decisive, jitter=lambda: jitter)
        self.now = 100.0
        self.nodes = nodes
        self.outstanding: dict[int, ContainerRequest] = {}
        self.keys: set[int] = set()
        self.allocated: dict[str, Container] = {}
        self.launched: dict[str, LaunchTask] = {}
        self.released: set[str] = set()
        self.completed: set[str] = set()
        self.rendezvous: list[SendRendezvous] = []
        self.shutdowns: list[ShutdownTask] = []
        self.notes: list[Note] = []
        self.finished: list[Verdict] = []
        self.carry_out(self.session.start(self.now))

    # ---- what the session wants --------------------------------------------------------------------------------

    def carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Request):
            for request in action.requests:
                assert request.key not in self.keys, "a key was used twice"
                self.keys.add(request.key)
                self.outstanding[request.key] = request
        elif isinstance(action, Cancel):
            for key in action.keys:
                del self.outstanding[key]
        elif isinstance(action, Release):
            for container_id in action.container_ids:
                assert container_id in self.allocated
                assert container_id not in self.released, "released twice"
                self.released.add(container_id)
        elif isinstance(action, LaunchTask):
            container_id = action.container.id
            assert container_id in self.held, "launched a container that is not ours"
            assert container_id not in self.launched, "launched twice"
            self.launched[container_id] = action
        elif isinstance(action, SendRendezvous):
            self.rendezvous.append(action)
        elif isinstance(action, ShutdownTask):
            self.shutdowns.append(action)
        elif isinstance(action, Note):
            self.notes.append(action)
        elif isinstance(action, Finish):
            self.finished.append(action.verdict)

    @property
    def held(self) -> set[str]:
        """Containers that are ours now."""
        return set(self.allocated) - self.released - self.completed

    @property
    def verdict(self) -> Verdict:
        assert len(self.finished) == 1
        return self.finished[0]

    @property
    def states(self) -> dict[str, TaskState]:
        return {task.name: task.state for task in self.session.tasks}

    # ---- what happens ------------------------------------------------------------------------------------------

    def grant(self, key: int | None = None) -> str:
        key = min(self.outstanding) if key is None else key
        del self.outstanding[key]
        number = len(self.allocated) + 1
        container = Container(f"container_1_0001_01_{number:06d}", f"node{number % self.nodes}:1")
        self.allocated[container.id] = container
        self.carry_out(self.session.allocated(key, container, self.now))
        return container.id

    def grant_all(self) -> None:
        while self.outstanding:
            self.grant()

    def container(self, name: str) -> str:
        task = self.session.task(name)
        assert task
        assert task.container
        return task.container.id

    def attempt(self, name: str) -> int:
        task = self.session.task(name)
        assert task
        return task.attempt

    def register(self, name: str, generation: int = 0) -> None:
        ports = {"main": 2000 + len(self.rendezvous)}
        self.carry_out(self.session.registered(name, self.attempt(name), "host", ports, generation, self.now))

    def register_all(self) -> None:
        for task in self.session.tasks:
            if task.state is TaskState.STARTING:
                self.register(task.name)

    def start(self, name: str) -> None:
        self.carry_out(self.session.process_started(name, self.attempt(name), self.session.generation, self.now))

    def run(self) -> World:
        """The gang gets all it wants and every user process starts."""
        self.grant_all()
        self.register_all()
        for task in self.session.tasks:
            self.start(task.name)
        return self

    def end(self, name: str, **how: object) -> None:
        end = ProcessEnd(self.session.generation, **how)  # type: ignore[arg-type]
        self.carry_out(self.session.process_ended(name, self.attempt(name), end, self.now))

    def complete(self, container_id: str, exit_status: int = 0, diagnostics: str = "") -> None:
        self.completed.add(container_id)
        self.carry_out(self.session.completed(container_id, exit_status, diagnostics, self.now))

    def complete_all(self, exit_status: int = 0) -> None:
        """Everything that was told to stop ends."""
        for container_id in sorted((set(self.launched) | self.released) - self.completed):
            self.complete(container_id, exit_status)

    def launch_fails(self, container_id: str) -> None:
        self.carry_out(self.session.launch_failed(container_id, "no disk left", self.now))

    def disconnect(self, name: str) -> None:
        self.carry_out(self.session.disconnected(name, self.attempt(name), self.now))

    def stop(self, reason: str = "killed by somebody") -> None:
        self.carry_out(self.session.stop_requested(reason, self.now))

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.carry_out(self.session.tick(self.now))

    def wait(self, seconds: float) -> None:
        """Time passes in small steps; executors that are up send their heartbeats."""
        until = self.now + seconds
        while self.now < until:
            for task in self.session.tasks:
                if task.connected:
                    self.session.heartbeat(task.name, task.attempt, Beat(), self.now)
            self.tick()

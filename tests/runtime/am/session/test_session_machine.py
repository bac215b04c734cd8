"""Every order of events that hypothesis can think of: what must hold whatever happens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.runtime.am.session.world import World, job
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.protocol.status import FinalStatus, JobState, TaskState
from tony_provider.runtime.spec.model import Role

JOBS = [
    ({"worker": 3}, ["worker"]),
    ({"chief": 1, "ps": 1, "worker": 2}, ["chief"]),
    ({"chief": 1, "worker": 1, "evaluator": 1, "sidecar": 1}, ["chief", "worker"]),
    ({"sidecar": 1, "worker": 1}, ["worker"]),
]
EXIT_STATUSES = [0, 1, 137, 143, -100, -101, -102, -103, -104, -105, -106, -1000]


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.registered: set[tuple[str, int]] = set()
        self.sent = 0

    @initialize(
        which=st.sampled_from(JOBS),
        queue=st.sampled_from([None, 300.0]),
        lifetime=st.sampled_from([None, 1000.0]),
        jitter=st.floats(0, 1),
    )
    def begin(
        self, which: tuple[dict[str, int], list[str]], queue: float | None, lifetime: float | None, jitter: float
    ) -> None:
        tasks, decisive = which
        limits = {"queue": queue, "lifetime": lifetime}
        timeouts = {name: value for name, value in limits.items() if value is not None}
        self.world = World(job(tasks, **timeouts), decisive, jitter=jitter)

    @property
    def w(self) -> World:
        assert self.world
        return self.world

    def _tasks(self) -> list[Task]:
        return list(self.w.session.tasks)

    def _live(self) -> list[Task]:
        """Tasks whose executor could say something."""
        return [task for task in self._tasks() if task.container and task.container.id in self._running()]

    def _running(self) -> set[str]:
        return set(self.w.launched) - self.w.completed

    # ---- what may happen ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.w.outstanding)
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        self.w.grant(data.draw(st.sampled_from(sorted(self.w.outstanding))))

    @precondition(lambda self: self.w.outstanding)
    @rule()
    def grant_everything(self) -> None:
        self.w.grant_all()

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def launch_fails(self, data: st.DataObject) -> None:
        """A launch that failed is never heard of again."""
        container_id = data.draw(st.sampled_from(sorted(self._running())))
        was_there = self.w.launched[container_id]
        if (was_there.task, was_there.attempt) in self.registered or container_id in self.w.released:
            return
        self.w.launch_fails(container_id)
        self.w.completed.add(container_id)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), generation=st.integers(0, 1))
    def register(self, data: st.DataObject, generation: int) -> None:
        task = data.draw(st.sampled_from(self._live()))
        self.registered.add((task.name, task.attempt))
        self.w.register(task.name, generation)

    @precondition(lambda self: self._live())
    @rule()
    def register_all(self) -> None:
        for task in self._live():
            self.registered.add((task.name, task.attempt))
            self.w.register(task.name)

    @precondition(lambda self: not self.w.finished)
    @rule()
    def everything_comes_up(self) -> None:
        self.w.grant_all()
        self.register_all()
        for task in self._live():
            self.w.start(task.name)

    @precondition(lambda self: self.w.rendezvous)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.w.start(data.draw(st.sampled_from(self._tasks())).name)

    @precondition(lambda self: self.w.rendezvous)
    @rule(
        data=st.data(),
        exit_code=st.sampled_from([0, 0, 0, 1, 127]),
        signal=st.sampled_from([0, 0, 0, 9, 11, 15]),
        stopped=st.booleans(),
        error=st.sampled_from(["", "", "could not write"]),
    )
    def end(self, data: st.DataObject, **how: object) -> None:
        self.w.end(data.draw(st.sampled_from(self._tasks())).name, **how)

    @precondition(lambda self: self.w.rendezvous)
    @rule()
    def deciders_succeed(self) -> None:
        for task in self._tasks():
            if task.decisive:
                self.w.end(task.name)

    @precondition(lambda self: set(self.w.allocated) - self.w.completed)
    @rule(data=st.data(), exit_status=st.sampled_from(EXIT_STATUSES))
    def complete(self, data: st.DataObject, exit_status: int) -> None:
        candidates = sorted(set(self.w.allocated) - self.w.completed)
        self.w.complete(data.draw(st.sampled_from(candidates)), exit_status, "what YARN says")

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.w.disconnect(data.draw(st.sampled_from(self._tasks())).name)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.w.tick(seconds)

    @rule(seconds=st.sampled_from([10.0, 70.0, 130.0]))
    def long_time_passes(self, seconds: float) -> None:
        self.w.wait(seconds)

    @rule()
    def stop(self) -> None:
        self.w.stop()

    # ---- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def verdict_once(self) -> None:
        if self.world:
            assert len(self.w.finished) <= 1
            assert self.w.session.finished == bool(self.w.finished)

    @invariant()
    def nobody_starts_before_all_have_registered(self) -> None:
        if not self.world or len(self.w.rendezvous) == self.sent:
            return
        if self.sent == 0:
            for task in self._tasks():
                given_up = task.role is Role.SIDECAR and task.ended
                assert given_up or (task.name, task.attempt) in self.registered
        self.sent = len(self.w.rendezvous)
        assert {each.cluster.generation for each in self.w.rendezvous} == {1}

    @invariant()
    def no_container_leaks(self) -> None:
        if not self.world:
            return
        ours = {task.container.id for task in self._tasks() if task.container}
        assert self.w.held <= ours, "a container that no task knows was not given back"
        assert len(self.w.held) + len(self.w.outstanding) <= len(self._tasks())
        if self.w.finished:
            assert not self.w.held
            assert not self.w.outstanding

    @invariant()
    def verdict_fits(self) -> None:
        if not self.world or not self.w.finished:
            return
        verdict = self.w.verdict
        assert (verdict.failure is None) == (verdict.status is FinalStatus.SUCCEEDED)
        if verdict.status is FinalStatus.SUCCEEDED:
            assert all(task.state is TaskState.SUCCEEDED for task in self._tasks() if task.decisive)
        assert all(task.ended for task in self._tasks())
        assert self.w.session.phase is JobState(verdict.status.value)

    def teardown(self) -> None:
        """Whatever state it is in, a stop ends it in bounded time, though nobody answers any more."""
        if not self.world:
            return
        self.w.stop()
        self.w.wait(30 + 30 + 10 + 5)
        assert self.w.finished
        self.no_container_leaks()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

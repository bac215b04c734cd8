"""Every order of events that hypothesis can think of: what must hold whatever happens.

What holds of each start is checked where the world carries it out, and what the session says of itself
(``Session.validate``) after every event. The events alone lead to the same state (``replay``).
"""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.runtime.am.session.same_state import differences
from tests.runtime.am.session.world import EPOCH, Executor, World, job, task_type
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session.checkpoints import mirror_ranks
from tony_provider.runtime.am.session.session import replay
from tony_provider.runtime.am.session.session_events import ExportRequested, FromTask, ModelExport
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.jobspec.model import (
    NO_TOLERANCE,
    ExportSpec,
    GrowRule,
    Memory,
    Milestone,
    MirrorScope,
    OpenHours,
    OutputSpec,
    ReadinessProbe,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
    SuccessRule,
    TaskSpec,
    Tolerance,
    Windows,
    in_cluster,
)
from tony_provider.runtime.protocol.status import ExportedModel, ExportRequest, FinalStatus, JobState, TaskState

JOBS: list[tuple[dict[str, int | TaskSpec], list[str]]] = [
    ({"worker": 3}, ["worker"]),
    ({"worker": task_type(3, min_instances=2)}, ["worker"]),
    ({"worker": task_type(2, min_instances=1, max_instances=4)}, ["worker"]),
    ({"worker": task_type(2, max_instances=4, grow=GrowRule.SPARE)}, ["worker"]),
    ({"worker": task_type(2, min_instances=1, max_instances=4, grow=GrowRule.SPARE)}, ["worker"]),
    (
        {
            "prepare": 1,
            "chief": 1,
            "worker": task_type(1, max_instances=3, grow=GrowRule.SPARE),
            "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED}),
        },
        ["chief", "worker"],
    ),
    ({"chief": 1, "ps": 1, "worker": task_type(1, max_instances=3), "evaluator": 1}, ["chief"]),
    (
        {
            "prepare": 1,
            "worker": task_type(2, min_instances=1, max_instances=3),
            "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED}),
        },
        ["worker"],
    ),
    ({"chief": 1, "ps": 1, "worker": 2}, ["chief"]),
    ({"ps": 2, "chief": 1, "worker": 2}, ["chief"]),
    ({"chief": 1, "worker": 1, "evaluator": 1, "sidecar": 1}, ["chief", "worker"]),
    (
        {
            "chief": 1,
            "worker": task_type(2, min_instances=1),
            "evaluator": task_type(1, restart=RestartScope.GANG),
            "sidecar": 1,
        },
        ["chief", "worker"],
    ),
    ({"worker": 1, "helper": task_type(1, restart=RestartScope.TASK), "sidecar": 1}, ["worker"]),
    ({"prepare": 1, "worker": 2, "sidecar": 1}, ["worker"]),
    ({"sidecar": 1, "worker": task_type(2, after={"sidecar": Milestone.STARTED})}, ["worker"]),
    (
        {"worker": 2, "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED}), "evaluator": 1},
        ["worker"],
    ),
    ({"worker": 1, "fragile": task_type(1, restart=RestartScope.NEVER)}, ["worker"]),
    (
        {"chief": task_type(1, restart=RestartScope.GANG), "worker": task_type(2, restart=RestartScope.TASK)},
        ["chief", "worker"],
    ),
    (
        {
            "prepare": 1,
            "sidecar": task_type(1, ready=ReadinessProbe(port=0)),
            "worker": task_type(2, after={"sidecar": Milestone.READY}),
            "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED}),
        },
        ["worker"],
    ),
    (
        {
            "worker": task_type(2, restart=RestartScope.TASK),
            "more": task_type(2, restart=RestartScope.TASK, after={"worker": Milestone.STARTED}),
        },
        ["worker", "more"],
    ),
    (
        {
            "worker": task_type(3, min_instances=2),
            "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED}),
        },
        ["worker"],
    ),
    (
        {"ps": 1, "worker": 2, "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})},
        ["worker"],
    ),
    (
        {
            "sidecar": task_type(2, ready=ReadinessProbe(port=0)),
            "worker": task_type(2, restart=RestartScope.TASK),
            "more": task_type(
                1, restart=RestartScope.TASK, after={"worker": Milestone.STARTED, "sidecar": Milestone.READY}
            ),
            "last": task_type(1, role=Role.ONCE, after={"more": Milestone.SUCCEEDED}),
        },
        ["worker", "more"],
    ),
]
POLICIES = [
    RestartPolicy(budget=0),
    RestartPolicy(permanent_exit_codes=[3]),
    RestartPolicy(budget=1000, memory_step=Memory(512), node_losses=1),
    RestartPolicy(budget=1000, same_failure=3),
]
SPARE = 10.0  # seconds
ALWAYS_BUT_SIX_MINUTES = Windows([OpenHours("13:58-13:52")])  # the world begins at 13:48
EXITS: list[int | ExitReason] = [0, 1, 137, 143, *(reason for reason in ExitReason if reason is not ExitReason.EXITED)]
# grace, last copies, logs, the release, and some more
LONGEST_END = 30 + 60 + 30 + 10 + 5


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.step = 0
        self.master_died = False
        self.former: set[str] = set()  # containers that a new application master has found

    @initialize(
        which=st.sampled_from(JOBS),
        policy=st.sampled_from(POLICIES),
        alone=st.booleans(),
        mirror=st.sampled_from(MirrorScope),
        success=st.sampled_from([None, None, SuccessRule.ALL, SuccessRule.ANY]),
        start=st.sampled_from([StartRule.GANG, StartRule.FIRST_COME]),
        tolerated=st.sampled_from([NO_TOLERANCE, NO_TOLERANCE, Tolerance("1"), Tolerance("100%")]),
        answers=st.booleans(),
        keeps=st.booleans(),
        outputs=st.booleans(),
        every=st.sampled_from([None, 1, 2]),
        windows=st.sampled_from([None, None, ALWAYS_BUT_SIX_MINUTES]),
        jitter=st.floats(0, 1),
        timeouts=st.fixed_dictionaries(
            {},
            optional={
                "queue": st.just(300.0),
                "lifetime": st.just(5000.0),
                "stall": st.just(60.0),
                "allocation": st.just(30.0),
                "replacement": st.just(20.0),
                "evaluator": st.just(1000.0),
            },
        ),
    )
    def begin(
        self,
        which: tuple[dict[str, int | TaskSpec], list[str]],
        policy: RestartPolicy,
        mirror: MirrorScope,
        success: SuccessRule | None,
        start: StartRule,
        tolerated: Tolerance,
        timeouts: dict[str, float],
        alone: bool,
        outputs: bool,
        every: int | None,
        windows: Windows | None,
        **world: Any,
    ) -> None:
        tasks, decisive = which
        spec = attrs.evolve(
            job(tasks, policy=policy, mirror=mirror, spare=SPARE, **timeouts),
            success=success,
            outputs={"out": OutputSpec("/out")} if outputs else {},
            export=ExportSpec(every=every),
            windows=windows,
        )
        gangs = (
            task.restart is RestartScope.GANG or task.min_instances or task.max_instances
            for task in spec.tasks.values()
        )
        if any(task.max_instances for task in spec.tasks.values()):
            alone = False
        if alone and not any(gangs):
            spec = attrs.evolve(spec, start=start, tolerated_failures=tolerated)
        elif spec.tasks["worker"].restart is RestartScope.TASK:
            spec = attrs.evolve(spec, tolerated_failures=tolerated)
        self.world = World(spec, decisive, alone=alone, **world)

    def _all_goes_well(self) -> None:
        self.w.answers = self.w.keeps = True
        self.w.resume()
        for _ in range(40):
            if self.w.finished:
                return
            if self.w.publishing is not None:
                self.w.published()
            self.everything_comes_up()
            for executor in self._running():
                if self.w.spec.tasks[self.w.task(executor.task).type].ready:
                    self.w.serve(executor.task)
            for executor in self._running():
                if self.w.task(executor.task).role in (Role.CHIEF, Role.WORKER, Role.ONCE):
                    self.w.end(executor.task)
            for executor in [each for each in self._current() if each.end and not each.settled]:
                self.w.settle(executor.task)
            for container_id in sorted((self.w.leaving | self.w.released) - self.w.completed):
                self.w.complete(container_id)
            self.w.tick(60.0)

    @property
    def w(self) -> World:
        assert self.world
        return self.world

    def _tasks(self) -> list[Task]:
        return list(self.w.session.tasks)

    def _reports(self) -> list[Executor]:
        return list(self.w.executors.values())

    def _connected(self) -> list[Executor]:
        """Those that can tell something: to the present master, after they have registered there."""
        return [executor for executor in self._reports() if executor.connected]

    def _current(self) -> list[Executor]:
        """Those whose session counts on them."""
        current = {task.container.id for task in self._tasks() if task.container and task.has_container}
        return [executor for executor in self._reports() if executor.container.id in current]

    def _told_to_end(self) -> list[Executor]:
        """Those that are there still."""
        return [each for each in self._current() if each.connected and each.container.id in self.w.leaving]

    def _running(self) -> list[Executor]:
        return [executor for executor in self._current() if executor.running and executor.connected]

    # ---- the cluster -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.w.outstanding)
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        self.w.grant(data.draw(st.sampled_from(sorted(self.w.outstanding))))

    @precondition(lambda self: self.w.outstanding)
    @rule()
    def grant_everything(self) -> None:
        self.w.grant_all()

    @precondition(lambda self: any(not executor.host for executor in self._reports()))
    @rule(data=st.data())
    def launch_fails(self, data: st.DataObject) -> None:
        """A launch that failed is never heard of again."""
        silent = [executor.container.id for executor in self._reports() if not executor.host]
        container_id = data.draw(st.sampled_from(silent))
        self.w.launch_fails(container_id)
        self.w.completed.add(container_id)

    @precondition(lambda self: set(self.w.allocated) - self.w.completed)
    @rule(data=st.data(), how=st.sampled_from(EXITS))
    def complete(self, data: st.DataObject, how: int | ExitReason) -> None:
        candidates = sorted(set(self.w.allocated) - self.w.completed)
        self.w.complete(data.draw(st.sampled_from(candidates)), how, "what YARN says")

    @precondition(lambda self: self._current())
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.w.preempt(data.draw(st.sampled_from(self._current())).task)

    @precondition(lambda self: self._spares())
    @rule(containers=st.sampled_from([None, 0, 1, 2, 3]))
    def room(self, containers: int | None) -> None:
        self.w.room = containers

    @precondition(lambda self: self._spares() and not self.w.finished)
    @rule(containers=st.integers(1, 2), comes_up=st.booleans(), commits=st.booleans())
    def room_for_long(self, containers: int, comes_up: bool, commits: bool) -> None:
        self.everything_comes_up()
        self.w.room = containers
        self.w.wait(SPARE + 2)
        if comes_up:
            self.everything_comes_up()
        if commits:
            self._commit_by_anybody()
            self.everything_comes_up()

    @precondition(lambda self: self._spares() and self._workers())
    @rule(data=st.data(), announced=st.booleans(), taken=st.booleans())
    def take_back(self, data: st.DataObject, announced: bool, taken: bool) -> None:
        """The cluster does so, or only says that it will, or does so without a word."""
        names = data.draw(st.lists(st.sampled_from(self._workers()), min_size=1, max_size=3, unique=True))
        if announced:
            self.w.preempt(*names)
        for name in names:
            if taken and self.w.task(name).has_container:
                self.w.lose(name, ExitReason.PREEMPTED)

    def _workers(self) -> list[str]:
        return [executor.task for executor in self._current() if executor.task.startswith("worker:")]

    def _commit_by_anybody(self) -> None:
        self.step += 1
        for executor in self._running():
            if self.w.commit_of(executor, self.step) is None:
                return

    def _spares(self) -> bool:
        return self.w.spec.tasks["worker"].grow is GrowRule.SPARE

    @rule(node=st.integers(0, 3))
    def node_leaves(self, node: int) -> None:
        self.w.node_leaves(f"node{node}:1")

    # ---- executors ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self._reports())
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        executor = data.draw(st.sampled_from(self._reports()))
        welcome = self.w.register(executor.task, executor)
        assert welcome or executor not in self._current()

    @precondition(lambda self: not self.w.finished)
    @rule()
    def everything_comes_up(self) -> None:
        self.w.obey_all()
        self.w.grant_all()
        for executor in self._current():
            self.w.register(executor.task, executor)
        for executor in self._running():
            self.w.start(executor.task)

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.w.disconnect(data.draw(st.sampled_from(self._tasks())).name)

    @precondition(lambda self: self._told_to_end())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        executor = data.draw(st.sampled_from(self._told_to_end()))
        if executor.running:
            self.w.end(executor.task, stopped=True, signal=15)
        self.w.leave(executor.task)

    @precondition(lambda self: self._current())
    @rule(data=st.data(), step=st.integers(0, 3))
    def beat(self, data: st.DataObject, step: int) -> None:
        executor = data.draw(st.sampled_from(self._current()))
        if executor.connected:
            self.w.beat(executor.task, step if executor.running else None)

    # ---- user processes ----------------------------------------------------------------------------------------

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.w.start(data.draw(st.sampled_from(self._running())).task)

    @precondition(lambda self: self._running())
    @rule(
        data=st.data(),
        exit_code=st.sampled_from([0, 0, 0, 1, 3, 127, 137]),
        signal=st.sampled_from([0, 0, 0, 9, 11, 15]),
        stopped=st.sampled_from([False, False, True]),
        out_of_memory=st.sampled_from([False, False, False, True]),
        error=st.sampled_from(["", "", "could not write"]),
        output_tail=st.sampled_from(["", "NameError: name 'lodel' is not defined"]),
        settles=st.booleans(),
    )
    def end(self, data: st.DataObject, **how: Any) -> None:
        self.w.end(data.draw(st.sampled_from(self._running())).task, **how)

    @precondition(lambda self: self._cut_off())
    @rule(data=st.data(), exit_code=st.sampled_from([0, 1]))
    def end_unheard(self, data: st.DataObject, exit_code: int) -> None:
        """Its executor tells when it is back."""
        executor = data.draw(st.sampled_from(self._cut_off()))
        self.w.process_ends(executor, exit_code=exit_code)

    def _cut_off(self) -> list[Executor]:
        return [executor for executor in self._current() if executor.running and not executor.connected]

    @precondition(lambda self: any(executor.end and not executor.settled for executor in self._current()))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        copying = [executor for executor in self._current() if executor.end and not executor.settled]
        self.w.settle(data.draw(st.sampled_from(copying)).task)

    @rule()
    def obey(self) -> None:
        self.w.obey_all()

    @precondition(lambda self: self._running())
    @rule()
    def deciders_succeed(self) -> None:
        for executor in self._running():
            if self.w.task(executor.task).decisive:
                self.w.end(executor.task)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    @precondition(lambda self: self._reports())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Whoever still runs somewhere may ask for it."""
        executor = data.draw(st.sampled_from(self._reports()))
        self.step += 1
        groups = self.w.session.groups
        takes_part = groups.preparing(self.w.task(executor.task)) is groups.gang
        choosing = takes_part and self.w.generation + 1 in self.w.choices
        alone = executor.task in {group.name for group in groups.every}  # it may run since an older one
        newest = alone or executor.generation == self.w.generation
        was_newest = newest and executor.start == self.w.starts.get(executor.task)
        was_current = executor in self._current()
        if self.w.commit_of(executor, self.step) is None:
            assert was_current
            assert was_newest
            assert not choosing or not in_cluster(self.w.task(executor.task).role)

    @precondition(lambda self: any(executor.resume and not executor.started for executor in self._running()))
    @rule(data=st.data(), damaged=st.booleans())
    def restore_fails(self, data: st.DataObject, damaged: bool) -> None:
        restoring = [executor for executor in self._running() if executor.resume and not executor.started]
        self.w.restore_fails(data.draw(st.sampled_from(restoring)).task, damaged=damaged)

    @precondition(lambda self: self.w.unanswered)
    @rule(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        self.w.choose(data.draw(st.sampled_from(self.w.unanswered)))

    @precondition(lambda self: self.w.not_kept)
    @rule()
    def keep_notes(self) -> None:
        self.w.keep_notes()

    # ---- exports of the model ----------------------------------------------------------------------------------

    @rule()
    def ask_for_export(self) -> None:
        """Who can be asked is asked at once, and whoever starts later then."""
        before = len(self.w.asked_to_export)
        request = round((EPOCH + self.w.now) * 1000)
        self.w.handle(ExportRequested("somebody wants it", request))
        asked = self.w.asked_to_export[before:]
        leader = self.w.session.state.leader
        assert [each.task for each in asked] == ([leader.name] if leader and leader.runs else [])

    @precondition(lambda self: self._connected())
    @rule(data=st.data(), old=st.booleans(), problem=st.sampled_from(["", "it is empty"]))
    def export(self, data: st.DataObject, old: bool, problem: str) -> None:
        """Whoever is connected may tell of one, made before the newest request or after it."""
        executor = data.draw(st.sampled_from(self._connected()))
        self.step += 1
        request = self.w.session.state.export_request
        asked_ms = request.asked_ms - old if request else 0
        made = ExportedModel(self.step, f"store/exports/step-{self.step}", 1, asked_ms)
        before = self.w.session.state.export
        self.w.handle(FromTask(executor.task, executor.attempt, ModelExport(made, problem)))
        after = self.w.session.state
        assert after.export in ((before,) if problem else (before, made))
        if after.export is not before:
            assert executor in self._current()
            assert (after.export_request is None) == (request is None or not old)

    # ---- outputs -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.w.publishing is not None)
    @rule(problem=st.sampled_from(["", "", "no room"]))
    def publish(self, problem: str) -> None:
        self.w.published(problem)
        assert self.w.verdict.status is (FinalStatus.FAILED if problem else FinalStatus.SUCCEEDED)

    # ---- the application master --------------------------------------------------------------------------------

    @precondition(lambda self: not self.w.finished)
    @rule(data=st.data())
    def master_dies(self, data: st.DataObject) -> None:
        self._replayed()
        calm, sent, stops = self._is_calm(), len(self.w.rendezvous), len(self.w.stops)
        self.master_died = True
        self.former |= self.w.held
        going_on = self._going_on()
        failures = self._failures_seen(going_on)
        over = {task.name for task in self._tasks() if task.done}
        exports, verdict, phase = self._exports(), self.w.session.verdict, self.w.session.phase
        self.w.master_dies()
        assert self._exports() == exports
        assert over <= {task.name for task in self._tasks() if task.done}
        if phase is JobState.FINISHING:
            told = self.w.session.verdict
            assert told == verdict or (verdict is None and told and told.status is FinalStatus.SUCCEEDED)
        else:
            assert self._failures_seen(going_on) == failures
        if calm:
            self.w.come_back()
            assert self.w.session.phase is JobState.RUNNING
            assert (len(self.w.rendezvous), len(self.w.stops)) == (sent, stops)
        else:
            for executor in self._reports():
                if data.draw(st.booleans()):
                    self.w.register(executor.task, executor)

    def _replayed(self) -> None:
        """The events alone lead to the same state."""
        assert differences(self.w.session, replay(self.w.new_session(), self.w.events)) == []

    def _exports(self) -> tuple[ExportedModel | None, ExportRequest | None]:
        return self.w.session.state.export, self.w.session.state.export_request

    def _going_on(self) -> list[str]:
        """Groups of tasks that were not given up."""
        given_up = {task.name for task in self._tasks() if task.given_up}
        return [group.name for group in self.w.session.groups.every if group.name not in given_up]

    def _failures_seen(self, names: list[str]) -> dict[str, list[str]]:
        groups = [group for group in self.w.session.groups.every if group.name in names]
        return {group.name: [each.what for each in group.repeats.seen] for group in groups}

    def _is_calm(self) -> bool:
        """Every user process runs, and nothing is under way."""
        session = self.w.session
        if (
            session.sizes.requested
            or session.phase is not JobState.RUNNING
            or len(self._running()) < sum(1 for task in self._tasks() if not task.unrequested)
        ):
            return False
        return not any(group.restart or group.root_cause.pending for group in session.groups.every)

    # ---- time --------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.w.tick(seconds)

    @rule(seconds=st.sampled_from([10.0, 70.0, 130.0, 310.0]))
    def long_time_passes(self, seconds: float) -> None:
        self.w.wait(seconds)

    @rule()
    def stop(self) -> None:
        self.w.stop()

    @rule()
    def suspend(self) -> None:
        self.w.suspend()

    @precondition(lambda self: self.w.session.suspension.reason is not None)
    @rule()
    def resume(self) -> None:
        self.w.resume()

    @precondition(lambda self: self._most() is not None)
    @rule(data=st.data())
    def resize(self, data: st.DataObject) -> None:
        spec = self.w.spec.tasks["worker"]
        number = data.draw(st.integers(spec.least_instances, spec.most_instances))
        late = self.w.session.resizing.is_too_late
        self.w.resize(worker=number)
        assert late or self.w.session.sizes.number("worker") == number

    def _most(self) -> int | None:
        return self.w.spec.tasks["worker"].max_instances

    def _number(self, name: str) -> int:
        return sum(1 for task in self._tasks() if task.type == name)

    # ---- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def verdict_once(self) -> None:
        if self.world:
            assert len(self.w.finished) <= 1
            assert self.w.session.finished == bool(self.w.finished)

    @invariant()
    def no_container_leaks(self) -> None:
        if not self.world:
            return
        if self.w.finished:
            assert self.w.held <= self.w.left, "one is still there, whose executor has not taken leave"
            assert not self.w.outstanding
        if self.w.session.phase is JobState.RECOVERING:
            return  # whose they are is still to be learned
        ours = {task.container.id for task in self._tasks() if task.has_container and task.container}
        assert self.w.held <= ours | self.w.leaving | self.former, "a container that no task knows was not given back"
        assert len(self.w.outstanding) <= sum(1 for task in self._tasks() if task.key is not None)

    @invariant()
    def suspended_it_has_nothing_and_starts_nothing(self) -> None:
        if not self.world or self.w.session.phase is not JobState.SUSPENDED:
            return
        assert not self.w.outstanding

    @invariant()
    def the_same_failure_is_the_jobs(self) -> None:
        if not self.world or self.w.session.verdict:
            return
        groups = {group.name: group for group in self.w.session.groups.every}
        for name, seen in self._failures_seen(self._going_on()).items():
            # Once more, from an older checkpoint.
            goes_back = groups[name].suspect is not None or bool(self.w.session.state.went_back)
            assert all(seen.count(what) <= self.w.spec.restart.same_failure + goes_back for what in seen)

    @invariant()
    def outputs_are_those_of_a_success(self) -> None:
        if self.world and self.w.publications:
            assert self.w.spec.outputs
            assert len(set(self.w.publications)) == 1, "another master publishes something else"
        if self.world and self.w.finished and self.w.verdict.status is FinalStatus.SUCCEEDED:
            assert bool(self.w.publications) == bool(self.w.spec.outputs)

    @invariant()
    def whoever_leads_knows_what_is_asked_for(self) -> None:
        if not self.world or self.w.session.verdict:
            return
        leader, request = self.w.session.state.leader, self.w.session.state.export_request
        if request and leader and leader.runs:
            assert self.w.executor(leader.name).asked_to_export == request.asked_ms

    @invariant()
    def verdict_fits(self) -> None:
        if not self.world or not self.w.finished:
            return
        verdict = self.w.verdict
        assert (verdict.failure is None) == (verdict.status is FinalStatus.SUCCEEDED)
        if verdict.status is FinalStatus.SUCCEEDED:
            deciders = [task for task in self._tasks() if task.decisive and not task.left_out and not task.given_up]
            succeeded = [task.state is TaskState.SUCCEEDED for task in deciders]
            # A master that takes over the verdict is not told whose success it was.
            one_is_enough = self.w.spec.success is SuccessRule.ANY
            assert all(succeeded) or (one_is_enough and (any(succeeded) or self.master_died))
            assert succeeded or not deciders
            given_up = sum(1 for task in self._tasks() if task.given_up and task.role is not Role.SIDECAR)
            assert given_up <= self.w.spec.most_failures
        assert all(task.ended for task in self._tasks())
        assert self.w.session.phase is JobState(verdict.status.value)

    @invariant()
    def enough_are_never_missing(self) -> None:
        if not self.world:
            return
        absent = [task for task in self._tasks() if task.left_out]
        assert all(task.role is Role.WORKER for task in absent)
        assert len(absent) <= (3 if self._most() else 1)

    @invariant()
    def there_are_as_many_as_may_be(self) -> None:
        if not self.world or not self._most():
            return
        spec = self.w.spec.tasks["worker"]
        assert spec.least_instances <= self._number("worker") <= spec.most_instances
        indices = [task.index for task in self._tasks() if task.type == "worker"]
        assert indices == list(range(len(indices)))

    @invariant()
    def what_is_vacant_is_of_a_type_that_uses_spare_room(self) -> None:
        if self.world:
            assert self._spares() or not any(task.unrequested for task in self._tasks())

    @invariant()
    def somebody_leads(self) -> None:
        """Rank 0 of the newest generation, whose status is the job's."""
        if self.world and self.w.generation:
            ((leader, _),) = mirror_ranks(MirrorScope.LEADER, self.w.session.state.members())
            assert self.w.status.leader == leader

    def teardown(self) -> None:
        """Whatever state it is in, it ends once all goes well, and a stop ends it though nobody answers any more."""
        if not self.world:
            return
        self._replayed()
        self._all_goes_well()
        assert self.w.finished
        self.w.stop()
        self.w.wait(LONGEST_END)
        assert self.w.finished
        self.no_container_leaks()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

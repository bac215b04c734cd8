"""A job of many tasks: nothing that is done for it grows with their square, nothing holds the loop for all of them.

Simulated executors over real streams, and a stand-in for the ResourceManager, are those of the benchmark `scale`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.scale_field import field
from tests.runtime.am.local_resource_manager.jobs import stage
from tests.runtime.am.session.world import World, job
from tony_provider.runtime.am import executor_server, master, message_limits
from tony_provider.runtime.am import master as cycle_collector
from tony_provider.runtime.am.checkpoint_chain import OwnChain, Ownership
from tony_provider.runtime.am.executor_messages import Rendezvous
from tony_provider.runtime.am.executor_server import WriteTurns
from tony_provider.runtime.am.local_resource_manager import LocalResourceManager
from tony_provider.runtime.am.master import ExecutorLaunches
from tony_provider.runtime.am.output_publisher import OutputPublisher
from tony_provider.runtime.am.records import ApplicationRecords
from tony_provider.runtime.am.resource_manager import Registered
from tony_provider.runtime.am.session.session_events import CheckpointOrder, StopOrder
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.am.token_replacement import StoreAccess
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.frameworks.base import TaskAddress
from tony_provider.runtime.jobspec.model import JobSpec, RestartPolicy, StartRule, SuccessRule, TaskSpec
from tony_provider.runtime.protocol import limits, messages, tony_pb2
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.storage import LocalStorage

TASKS = 150
DEADLINE = 30


def test_many_simulated_executors_start_again_together_and_meet_the_next_master_over_a_stand_in_for_yarn() -> None:
    with field(TASKS) as found:
        found.start_master(1)
        found.until_all("generations", 1)
        found.ask(order="fail", task="worker:70")
        found.until_all("generations", 2)
        found.until_noted('"generation":2')
        found.kill_master()
        found.start_master(2)
        found.until_all("attempts", 2)
        found.until_noted('"recovered"')
        assert found.count("generations", 2) == TASKS  # nobody was started again
        found.ask(order="fail", task="worker:70")
        found.until_all("generations", 3)
        assert found.count("starts", 3) == TASKS


def noted(tasks: int) -> int:
    """Characters in what the event log keeps of a restart for the next master."""
    world = World(job({"worker": tasks}, policy=RestartPolicy()), ["worker"]).run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    assert world.generation == 2
    return sum(len(json.dumps(event["data"])) for event in world.log if event.get("data"))


def test_what_the_event_log_keeps_of_a_restart_does_not_grow_with_the_tasks() -> None:
    assert noted(300) == noted(30)


def test_addresses_are_the_same_object_until_one_changes() -> None:
    """Encoding them is the dear part, and is done once for each object."""
    world = World(job({"worker": 3}, policy=RestartPolicy()), ["worker"], alone=True).run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    first, second = world.rendezvous
    assert second.cluster is first.cluster
    world.lose("worker:1")
    world.wait(RestartPolicy().backoff)
    world.restarted()
    assert world.rendezvous[-1].cluster != first.cluster


def looks(tasks: int, success: SuccessRule | None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the state of a task is looked at for one message while all run, and for one at the end."""
    world = World(attrs.evolve(job({"worker": tasks, "evaluator": 1}), success=success), ["worker"], alone=True).run()
    state = vars(Task)["state"].fget
    seen: list[Task] = []

    def look(task: Task) -> TaskState:
        seen.append(task)
        return TaskState(state(task))

    found = []
    for phase in (JobState.RUNNING, JobState.FINISHING):
        assert world.session.phase is phase
        world.disconnect("evaluator:0")  # what has to be looked at is known from now on
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Task, "state", property(look))
            world.disconnect("evaluator:0")
        found.append(len(seen))
        for index in range(1 if success else tasks):
            world.end(f"worker:{index}")
    return found


@pytest.mark.parametrize("success", [None, SuccessRule.ANY])
def test_what_a_message_costs_does_not_grow_with_the_tasks(
    success: SuccessRule | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks(300, success, monkeypatch) == looks(30, success, monkeypatch)


def test_a_task_that_begins_by_itself_has_nobody_else_s_address_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = attrs.evolve(job({"worker": 50}), start=StartRule.FIRST_COME)
    world = World(spec, ["worker"], alone=True)
    wire, made = Rendezvous(), 0
    encode = messages._encode

    def count(task: TaskAddress) -> bytes:
        nonlocal made
        made += 1
        return encode(task)

    monkeypatch.setattr(messages, "_encode", count)
    for index in range(50):
        world.grant()
        world.register(f"worker:{index}")
        order = world.rendezvous[-1]
        ((name, message),) = wire.messages(order)
        assert name == f"worker:{index}"
        unpacked = messages.unpack_cluster(1, message().rendezvous.cluster)
        assert unpacked == order.cluster
        assert [task.main for task in unpacked.tasks].count("") == 49 - index
    assert made == 50 + 49  # all at first, then each one's own


async def test_steps_that_wait_by_the_thousand_let_others_have_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "_SLICE", 0.0)
    staged = stage(tmp_path, JobSpec("standalone", {"worker": TaskSpec("true")}))
    description, credentials = staged.description, staged.credentials
    assert description.local
    ownership = Ownership(LocalStorage(), description, 1, credentials.secrets[contract.SECRET_ADDRESS_KEY])
    chain = OwnChain(ownership)
    manager = LocalResourceManager(description, description.local)
    launches = ExecutorLaunches(description, credentials, b"", Address("127.0.0.1", 1))
    records = ApplicationRecords(ownership)
    access = StoreAccess(description, credentials, LocalStorage())
    data = master.JobData([], OutputPublisher(ownership))
    leading = master.Master(manager, launches, records, chain, access, data)
    rounds = [0]

    async def others() -> None:
        while True:
            rounds[0] += 1
            await asyncio.sleep(0)

    going = asyncio.ensure_future(others())
    try:
        leading.begin(Registered(largest=None))
        for _ in range(TASKS):
            leading.post(CheckpointOrder("a test"))
        leading.post(StopOrder("a test"))
        await asyncio.wait_for(leading.run(), DEADLINE)
    finally:
        going.cancel()
        await manager.close()
        chain.close()
    assert rounds[0] > TASKS


class Context:
    """Stands in for a stream of gRPC, which takes its message when it is told."""

    def __init__(self, begun: Callable[[], None]) -> None:
        self.taken = asyncio.Event()
        self._begun = begun

    async def write(self, message: Any) -> None:
        self._begun()
        await self.taken.wait()


async def test_messages_on_their_way_are_bounded_and_made_when_their_turn_comes() -> None:
    turns, begun, made = WriteTurns(), [0], [0]

    def begin() -> None:
        begun[0] += 1

    def make() -> tony_pb2.ToExecutor:
        made[0] += 1
        return tony_pb2.ToExecutor()

    contexts = [Context(begin) for _ in range(TASKS)]
    writing = [asyncio.ensure_future(turns.write(context, make)) for context in contexts]
    while begun[0] < executor_server.AT_ONCE:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert made == begun == [executor_server.AT_ONCE]
    for context in contexts:
        context.taken.set()
    await asyncio.wait_for(asyncio.gather(*writing), DEADLINE)
    assert made == begun == [TASKS]


async def test_streams_that_take_nothing_do_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_server, "_LONGEST_TURN", 0.01)
    turns = WriteTurns()
    stuck = [Context(lambda: None) for _ in range(executor_server.AT_ONCE)]
    waiting = [asyncio.ensure_future(turns.write(context, tony_pb2.ToExecutor())) for context in stuck]
    other = Context(lambda: None)
    other.taken.set()
    await asyncio.wait_for(turns.write(other, tony_pb2.ToExecutor()), DEADLINE)
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_collector_looks_at_everything_seldom_and_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    collecting = asyncio.ensure_future(cycle_collector.collect_seldom())
    await asyncio.sleep(0)
    assert gc.get_threshold()[0] > before[0]
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    assert gc.get_threshold() == before


def test_open_files_are_allowed_for_every_stream_as_far_as_the_node_lets_us(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        message_limits.raise_open_files_limit(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (max(soft, 2058) if soft >= 0 else soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        message_limits.raise_open_files_limit(500)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2548, hard)
        assert message_limits.executor_connection_limit(500) == 1524  # and 1,024 for everything else
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        assert message_limits.executor_connection_limit(500) == 200  # half of what there is
        assert not caplog.records
        if hard != resource.RLIM_INFINITY:
            message_limits.raise_open_files_limit(hard)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            assert f"this node allows {hard}" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_executors_of_large_jobs_come_one_after_the_other_and_have_patience() -> None:
    assert limits.spread(4) < 0.05
    assert limits.spread(10_000) > 10
    assert limits.connect_timeout(4) == 5
    assert limits.connect_timeout(10_000) > limits.spread(10_000)

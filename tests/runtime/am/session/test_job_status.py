"""What people and the Airflow side see of a session."""

from __future__ import annotations

import attrs

from tests.runtime.am.session.world import EPOCH, World, job, task_type
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.session_state import Heartbeat
from tony_provider.runtime.common.codec import dump_json, load_json, to_plain
from tony_provider.runtime.jobspec.model import RestartPolicy
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState


def workers(number: int = 3) -> World:
    return World(job({"worker": number}, policy=RestartPolicy()), ["worker"])


def status(world: World) -> JobStatus:
    now_ms = int((EPOCH + world.now) * 1000)
    return job_status.job_status(
        world.session, application_id="application_1_0001", am_attempt=1, started_ms=1, now=world.now, now_ms=now_ms
    )


def said(world: World) -> str:
    return job_status.message(world.session, world.now)


def test_numbers_of_restarts_and_checkpoints() -> None:
    world = workers().run()
    fresh = status(world)
    assert (fresh.resumed_step, fresh.checkpoint_step, fresh.checkpoint_dir, fresh.restarts) == (None, None, None, 0)
    world.commit(10)
    world.end("worker:1", exit_code=1)
    world.restarted()
    world.commit(20)
    later = status(world)
    assert (later.resumed_step, later.checkpoint_step, later.restarts, later.generation) == (10, 20, 1, 2)
    assert later.checkpoint_dir == "store/step-20-2"
    assert [(task.start, task.attempt) for task in later.tasks] == [(2, 1)] * 3


def test_the_numbers_of_the_job_are_those_of_its_leader() -> None:
    world = workers().run()
    silent = status(world)
    assert (silent.leader, silent.leading, silent.step, silent.metrics) == ("worker:0", None, None, {})
    for name, progress in (("worker:0", TaskProgress(5, 10, 2.0, {"loss": 0.5})), ("worker:1", TaskProgress(7, 10))):
        world.report(name, Heartbeat({"rss_bytes": 0}, progress=progress))
    told = status(world)
    assert (told.step, told.total_steps, told.steps_per_second, told.metrics) == (5, 10, 2.0, {"loss": 0.5})
    on_the_wire = to_plain(told)
    assert not on_the_wire.keys() & attrs.fields_dict(TaskProgress).keys()
    assert load_json(dump_json(told), JobStatus).leading == told.leading


def test_the_parameters_are_those_of_the_leader_or_else_of_the_first_task() -> None:
    world = workers().run()
    assert status(world).parameters == {}
    world.report("worker:2", Heartbeat({}, parameters={"lr": "2"}))
    world.report("worker:1", Heartbeat({}, parameters={"lr": "1"}))
    assert status(world).parameters == {"lr": "1"}
    world.report("worker:0", Heartbeat({}, parameters={"lr": "0"}))
    world.report("worker:0", Heartbeat({}))
    assert load_json(dump_json(status(world)), JobStatus).parameters == {"lr": "0"}
    world.end("worker:0", parameters={"lr": "0.5"})
    assert status(world).parameters == {"lr": "0.5"}


def test_what_a_restart_waits_for() -> None:
    world = workers().run()
    assert said(world) == "3 of 3 tasks running"
    world.lose("worker:1")
    why = (
        "the container of worker:1 on node2:1 was lost: "
        "its node or NodeManager failed, or the cluster reclaimed the container"
    )
    assert status(world).state is JobState.RESTARTING
    assert said(world) == f"restarting: stopping worker:0, worker:2; {why}"
    world.obey("worker:2")
    world.obey("worker:0", settles=False)
    assert said(world) == f"restarting: copying the last checkpoint of worker:0; {why}"
    world.settle("worker:0")
    assert [task.state for task in status(world).tasks] == [
        TaskState.REGISTERED,
        TaskState.REQUESTED,
        TaskState.REGISTERED,
    ]
    assert said(world) == f"restarting: waiting for a new container for worker:1; {why}"
    world.grant()
    assert said(world) == f"restarting: waiting for worker:1 to register; {why}"
    world.answers = False
    world.run()
    world.end("worker:1", signal=9)
    world.obey_all()
    assert said(world).startswith("restarting: waiting for the cluster to report the cause; worker:1 on node0:1")
    world.tick(0.5)
    world.tick(0.5)
    assert said(world).startswith("restarting: in 4 s; worker:1 on node0:1 was killed by SIGKILL")
    world.tick(5)
    assert said(world).startswith("restarting: choosing the checkpoint to resume from; worker:1")


def test_tasks_that_start_again_alone() -> None:
    world = World(job({"worker": 1, "evaluator": 1}, policy=RestartPolicy()), ["worker"]).run()
    world.lose("evaluator:0")
    assert said(world) == "1 of 2 tasks running; evaluator:0 restarts: waiting for a new container for evaluator:0"


def test_a_smaller_gang() -> None:
    spec = job({"worker": task_type(2, min_instances=1)}, policy=RestartPolicy(), replacement=10)
    world = World(spec, ["worker"]).run()
    world.lose("worker:1")
    world.obey_all()
    world.wait(11)
    world.start_all()
    assert said(world) == "1 of 2 tasks running, continuing without worker:1"


def test_a_new_application_master() -> None:
    world = workers().run()
    world.master_dies()
    assert status(world).state is JobState.RECOVERING
    assert said(world) == "a new application master took over; waiting for 3 executors to reconnect"
    world.come_back()
    assert said(world) == "3 of 3 tasks running"


def test_the_start() -> None:
    world = workers(2)
    assert said(world) == "waiting for 2 of 2 containers: 2 x worker (2048 MiB, 1 vcore)"
    world.answers = False
    world.grant_all()
    assert said(world) == "0 of 2 executors registered, waiting for worker:0, worker:1"
    world.lose("worker:1")
    world.register_all()
    assert said(world) == "waiting for a new container for worker:1"

"""Going on smaller when a lost container cannot be replaced, and larger again when it can."""

from __future__ import annotations

from typing import Any

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.jobspec.model import Milestone, RestartPolicy, Role, ranks
from tony_provider.runtime.protocol.status import FinalStatus, JobState

REPLACEMENT = 60


def world(tasks: dict[str, Any] | None = None, budget: int = 3) -> World:
    tasks = tasks or {"worker": task_type(3, min_instances=2)}
    spec = job(tasks, policy=RestartPolicy(budget=budget), replacement=REPLACEMENT, grace=10, checkpoint=20)
    return World(spec, ["worker"]).run()


def smaller(tasks: dict[str, Any] | None = None) -> World:
    """One whose worker:1 was lost and not replaced in time."""
    gang = world(tasks)
    gang.commit(5)
    gang.lose("worker:1")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)
    return gang


def test_the_gang_goes_on_without_a_task_that_is_not_replaced_in_time() -> None:
    gang = smaller()
    sent = gang.rendezvous[-1]
    assert sent.starts == {"worker:0": 2, "worker:2": 2}
    assert [(task.type, task.index) for task in sent.cluster.tasks] == [("worker", 0), ("worker", 2)]
    assert sent.resume == point(5, "store/step-5-1")
    assert gang.session.phase is JobState.RUNNING
    assert gang.session.without == {"worker:1"}
    assert len(gang.outstanding) == 1  # it is still asked for


def test_it_succeeds_without_it() -> None:
    gang = smaller()
    gang.start_all()
    gang.end("worker:0")
    gang.end("worker:2")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED
    assert not gang.outstanding


def test_it_grows_at_the_next_checkpoint() -> None:
    gang = smaller()
    gang.start_all()
    gang.grant()
    gang.register("worker:1")
    assert (gang.generation, gang.session.without) == (2, frozenset({"worker:1"}))
    gang.tick()
    assert gang.asked[-1].tasks == ("worker:0",)
    gang.commit(8)
    assert gang.stopped()[-2:] == ["worker:0", "worker:2"]
    gang.obey_all()
    assert gang.rendezvous[-1].starts == {"worker:0": 3, "worker:1": 2, "worker:2": 3}
    assert gang.rendezvous[-1].resume == point(8, "store/step-8-2")
    assert gang.session.without == frozenset()


def test_it_grows_after_a_time_where_no_checkpoint_comes() -> None:
    gang = smaller()
    gang.start_all()
    gang.grant()
    gang.register("worker:1")
    gang.wait(CHECKPOINT_WAIT - 1)
    assert gang.generation == 2
    gang.wait(3)
    gang.obey_all()
    assert gang.generation == 3


def test_growing_is_not_counted() -> None:
    gang = world(budget=1)
    gang.lose("worker:1")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)
    gang.start_all()
    gang.grant()
    gang.register("worker:1")
    gang.wait(CHECKPOINT_WAIT + 1)
    gang.obey_all()
    assert gang.generation == 3
    assert gang.session.verdict is None
    assert gang.session.state.restarts == 2


def test_one_that_is_there_joins_whatever_the_next_generation_is_for() -> None:
    gang = smaller()
    gang.start_all()
    gang.grant()
    gang.register("worker:1")
    gang.end("worker:2", exit_code=1)
    gang.obey_all()
    gang.tick(6)
    assert set(gang.rendezvous[-1].starts) == {"worker:0", "worker:1", "worker:2"}


def test_one_that_is_not_there_yet_is_not_waited_for() -> None:
    gang = smaller()
    gang.start_all()
    gang.grant()
    gang.end("worker:2", exit_code=1)
    gang.obey_all()
    gang.tick(6)
    assert set(gang.rendezvous[-1].starts) == {"worker:0", "worker:2"}


def test_what_becomes_of_one_that_is_not_missed_is_no_failure() -> None:
    gang = smaller()
    gang.start_all()
    for _ in range(6):
        if gang.outstanding:
            gang.grant()
            gang.lose("worker:1", 65)
    assert gang.session.verdict is None
    assert not gang.outstanding  # enough was tried
    assert gang.noted("given_up")


def test_not_below_the_least() -> None:
    gang = smaller()
    gang.start_all()
    gang.lose("worker:2")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)
    gang.complete_all()
    gang.wait(120)
    assert len(gang.outstanding) == 3
    gang.run()
    assert set(gang.rendezvous[-1].starts) == {"worker:0", "worker:1", "worker:2"}


def led_by_the_next() -> World:
    """One whose leader was lost and not replaced in time."""
    gang = world()
    gang.commit(5)
    gang.lose("worker:0")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)
    return gang


def test_without_the_leader_the_next_one_leads() -> None:
    gang = led_by_the_next()
    sent = gang.rendezvous[-1]
    assert sent.starts == {"worker:1": 2, "worker:2": 2}
    assert sent.resume == point(5, "store/step-5-1")
    assert ranks(sent.cluster.tasks) == {("worker", 1): 0, ("worker", 2): 1}
    assert gang.session.mirror_ranks() == [("worker:1", 0)]
    assert gang.status.leader == "worker:1"
    gang.start_all()
    gang.end("worker:1", model_dir="store/model")
    gang.end("worker:2")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED
    assert (gang.status.leader, gang.status.model_dir) == ("worker:1", "store/model")


def test_the_leader_leads_again_when_it_is_back() -> None:
    gang = led_by_the_next()
    gang.start_all()
    gang.grant()
    gang.register("worker:0")
    gang.commit(8, "worker:1")
    gang.obey_all()
    assert gang.rendezvous[-1].resume == point(8, "store/step-8-2")
    assert gang.session.mirror_ranks() == [("worker:0", 0)]
    assert gang.status.leader == "worker:0"


def test_the_next_master_knows_who_leads() -> None:
    gang = led_by_the_next()
    gang.start_all()
    gang.master_dies()
    gang.come_back()
    assert gang.session.phase is JobState.RUNNING
    assert gang.status.leader == "worker:1"
    assert gang.session.mirror_ranks() == [("worker:1", 0)]


def test_never_without_a_parameter_server() -> None:
    tasks = {"chief": task_type(1), "ps": task_type(2, min_instances=1), "worker": task_type(2, min_instances=1)}
    gang = world(tasks)
    gang.lose("ps:1")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)


def test_where_a_chief_leads_any_worker_may_be_missing() -> None:
    gang = world({"chief": task_type(1), "worker": task_type(2, min_instances=1)})
    gang.lose("worker:0")
    gang.obey_all()
    gang.wait(REPLACEMENT + 1)
    assert set(gang.rendezvous[-1].starts) == {"chief:0", "worker:1"}


def done_smaller() -> World:
    """A gang that has succeeded without worker:1, and what waits for it."""
    export = task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})
    gang = smaller({"worker": task_type(3, min_instances=2), "export": export})
    gang.start_all()
    gang.end("worker:0")
    gang.end("worker:2")
    return gang


def test_nobody_waits_for_a_task_that_the_gang_does_without() -> None:
    gang = done_smaller()
    assert len(gang.outstanding) == 1  # export's
    assert gang.shut_down() == ["worker:0", "worker:2"]
    gang.run()
    gang.end("export:0")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED


def test_what_has_succeeded_smaller_does_not_grow_at_the_next_master_either() -> None:
    gang = done_smaller()
    for name in ("worker:0", "worker:2"):
        gang.complete(gang.streams[name])
    gang.master_dies()
    gang.wait(100)
    assert len(gang.outstanding) == 1
    gang.run()
    assert gang.states["export:0"].value == "RUNNING"
    assert gang.starts == {"worker:0": 2, "worker:1": 1, "worker:2": 2, "export:0": 1}

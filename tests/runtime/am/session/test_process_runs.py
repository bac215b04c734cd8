"""Which user processes run, for those that deal something to them."""

from __future__ import annotations

from tests.runtime.am.session.world import World, job, task_type
from tony_provider.runtime.jobspec.model import RestartScope


def world() -> World:
    gang = World(job({"worker": task_type(2, restart=RestartScope.TASK)}), ["worker"]).run()
    gang.start_all()
    return gang


def test_a_process_runs_from_its_order_to_its_end() -> None:
    gang = world()
    assert gang.session.process_runs("worker:0", 1, 1)
    assert not gang.session.process_runs("worker:0", 1, 2)
    assert not gang.session.process_runs("worker:0", 2, 1)
    assert not gang.session.process_runs("worker:7", 1, 1)
    gang.end("worker:0")
    assert not gang.session.process_runs("worker:0", 1, 1)
    assert gang.session.process_runs("worker:1", 1, 1)


def test_a_process_whose_container_was_lost_does_not_run() -> None:
    gang = world()
    gang.lose("worker:0")
    assert not gang.session.process_runs("worker:0", 1, 1)

"""What a later application master reads out of the event log."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.am.session.world import EPOCH, World, job, point, task_type
from tony_provider.runtime.am.session.recovery import History, TaskHistory, merge_data
from tony_provider.runtime.am.session.restart_policy import GroupProgress, SeenFailure, recognise
from tony_provider.runtime.am.session.session_state import Hold, HoldSource, Sizing, TypeSize
from tony_provider.runtime.common.codec import CodecError
from tony_provider.runtime.jobspec.model import GrowRule, RestartPolicy
from tony_provider.runtime.protocol.status import Failure, FailureKind

NO_OUTPUT = recognise(Failure(FailureKind.USER, "ended", "worker:0", exit_code=1), "worker") or ""

values = st.none() | st.integers(0, 3) | st.just([1, 2])
keys = st.sampled_from("abc")
inner = st.dictionaries(keys, values | st.dictionaries(keys, values, max_size=2), max_size=2)
json_objects = st.dictionaries(keys, values | inner, max_size=3)


def test_of_a_job_that_has_just_begun() -> None:
    assert History.read([{"time_ms": 5000, "event": "application", "labels": {}}]) == History(started=5.0)
    assert History.read([]) == History()


def test_of_a_job_that_has_seen_something() -> None:
    world = World(job({"worker": 2}, policy=RestartPolicy(node_losses=1)), ["worker"]).run()
    world.commit(10)
    world.lose("worker:1")
    world.restarted()
    world.commit(10)
    world.end("worker:0", exit_code=1)
    history = History.read(json.loads(json.dumps(world.log)))
    assert history == History(
        started=EPOCH + 100,
        generation=2,
        resume=point(10, "store/step-10-1"),
        start=2,
        tasks={"worker:1": TaskHistory(attempt=2)},
        restarts=2,
        restart_times={"gang": [EPOCH + 100, EPOCH + 100]},
        failures={"gang": [SeenFailure(EPOCH + 100, NO_OUTPUT)]},
        progress={"gang": GroupProgress(saved=10)},
        moves={"gang": 0},
        restarting={"gang": True},
        nodes={"node2:1": 1},
        checkpoint=point(10, "store/step-10-2"),
    )


def test_of_a_job_whose_size_changes() -> None:
    tasks = {"worker": task_type(2, max_instances=4, grow=GrowRule.SPARE), "helper": task_type(1)}
    world = World(job(tasks), ["worker"]).run()
    world.resize(worker=4)
    world.resize(worker=3)
    world.suspend("the day belongs to others")
    sizing = History.read(json.loads(json.dumps(world.log))).sizing
    assert sizing == world.session.state.sizing
    assert sizing == Sizing(
        types={"worker": TypeSize(3, requested=3, spare_limit=3), "helper": TypeSize(1)},
        hold=Hold("the day belongs to others", HoldSource.USER),
    )
    world.resume()
    assert History.read(json.loads(json.dumps(world.log))).sizing == attrs.evolve(sizing, hold=None)


def test_what_a_newer_application_master_wrote_is_passed_over() -> None:
    assert History.read([{"data": {"generation": 3, "moon": "full"}}]).generation == 3


@pytest.mark.parametrize("data", [{"generation": "three"}, {"tasks": []}, {"restart_times": {"gang": 1}}])
def test_what_is_no_history_is_refused(data: Any) -> None:
    with pytest.raises(CodecError):
        History.read([{"data": data}])


@given(st.lists(json_objects, min_size=2, max_size=4))
def test_older_events_can_be_folded_into_one(changes: list[dict[str, Any]]) -> None:
    one_by_one: dict[str, Any] = {}
    for change in changes:
        one_by_one = merge_data(one_by_one, change)
    folded = merge_data(changes[0], changes[1])
    for change in changes[2:]:
        folded = merge_data(folded, change)
    assert folded == one_by_one


@given(json_objects, json_objects)
def test_the_newer_value_counts(known: dict[str, Any], data: dict[str, Any]) -> None:
    merged = merge_data(known, data)
    assert set(merged) == set(known) | set(data)
    for key, value in data.items():
        if not isinstance(value, dict):
            assert merged[key] == value

"""One row of each kind of `make faults`, with a program that needs no TensorFlow."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from tests.faults.conftest import NewField
from tests.faults.field import Field
from tests.faults.row import COUNT, ROWS, TRAIN
from tests.faults.rows import in_order
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.full_batch import ends_as_if_undisturbed, steps, training, until_steps
from tests.jobs.places import YarnPlace

# The others of a kind are in `make faults`; what the rows are about is tested by itself too, where its code is.
SHARED = (
    "leader-killed",
    "executor-killed",
    "master-killed",
    "truncated-on-store",
    "quota-at-model",
    "overwriting",
    "out-of-memory",
)
BREAKING = ("resourcemanager-failover", "nodemanager-killed", "preempted")
AIRFLOW = ("not-delivered",)
# It takes minutes; two jobs that each want more than there is are in tests/jobs/test_allocation.py.
LONG = {"queue"}
# Two of them have a node, beside a master. Four have more than their queue's share, by two.
SPARED = "1800MiB"


@pytest.mark.parametrize("name", SHARED)
def test_a_fault_on_a_cluster_that_stays_whole(hadoop: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(hadoop))


@pytest.mark.parametrize("name", BREAKING)
def test_a_fault_of_the_cluster(breakable: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(breakable))


@pytest.mark.parametrize("name", AIRFLOW)
def test_a_fault_of_airflow(hadoop: HadoopCluster, new_field: NewField, airflow_db: None, name: str) -> None:
    _run(name, new_field(hadoop))


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
def test_what_the_queue_had_to_spare_is_taken_given_back_and_taken_again(
    breakable: HadoopCluster, tmp_path: Path, again: bool
) -> None:
    """By a job that needs two of its workers; the room of the others is another queue's share, which wants it."""
    place = YarnPlace(cluster=breakable)
    job = training(
        place,
        tmp_path,
        memory=SPARED,
        grow="spare",
        job={"queue": "default", "timeouts": {"spare": "1s", "grace": "30s"}, "restart": {"budget": 0}},
    )
    until_steps(job, tmp_path, 4)
    sleeper = {"instances": 7, "memory": "1000MiB", "command": "exec sleep 600"}
    rival = place.submit({"queue": "ml", "start": "first-come", "tasks": {"worker": sleeper}})
    until_steps(job, tmp_path, 2)
    if again:
        rival.hook.kill(rival.id, "its share is free again")
        until_steps(job, tmp_path, 4)
    status = ends_as_if_undisturbed(job, tmp_path)
    sizes = [size for size, _ in groupby(size for _, size in steps(tmp_path))]
    assert (sizes[0], sizes[-1]) == (2, 4 if again else 2)
    assert 4 in sizes
    assert 2 in sizes[2:]
    assert status.failure is None
    events = job.events()
    assert [event["message"] for event in events if event["event"] == "preempting"]
    assert not [event for event in events if event["event"] == "replaced"]
    place.close()


def test_every_kind_has_a_representative() -> None:
    tested = {ROWS[name].kind for name in (*SHARED, *BREAKING, *AIRFLOW)}
    assert {row.kind for row in in_order()} - tested == LONG


def _run(name: str, field: Field) -> None:
    row = ROWS[name]
    field.program = COUNT if row.program == TRAIN else row.program
    account = row.run(field)
    assert account.problems == [], account

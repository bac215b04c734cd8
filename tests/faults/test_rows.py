"""One row of each kind of `make faults`, with a program that needs no TensorFlow."""

from __future__ import annotations

import pytest

from tests.faults.conftest import NewField
from tests.faults.field import Field
from tests.faults.row import COUNT, ROWS, TRAIN
from tests.faults.rows import in_order
from tests.hadoop.cluster import HadoopCluster

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


@pytest.mark.parametrize("name", SHARED)
def test_a_fault_on_a_cluster_that_stays_whole(hadoop: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(hadoop))


@pytest.mark.parametrize("name", BREAKING)
def test_a_fault_of_the_cluster(breakable: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(breakable))


@pytest.mark.parametrize("name", AIRFLOW)
def test_a_fault_of_airflow(hadoop: HadoopCluster, new_field: NewField, airflow_db: None, name: str) -> None:
    _run(name, new_field(hadoop))


def test_every_kind_has_a_representative() -> None:
    tested = {ROWS[name].kind for name in (*SHARED, *BREAKING, *AIRFLOW)}
    assert {row.kind for row in in_order()} - tested == LONG


def _run(name: str, field: Field) -> None:
    row = ROWS[name]
    field.program = COUNT if row.program == TRAIN else row.program
    account = row.run(field)
    assert account.problems == [], account

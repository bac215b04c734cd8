"""One row of each kind of `make secure`, on the Kerberos cluster that all tests share, against one job of alice's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.secure.conftest import NewField
from tests.secure.field import Field
from tests.secure.row import ROWS
from tests.secure.rows import in_order
from tests.secure.standing import Standing

REPOSITORY = Path(__file__).resolve().parents[2]
# The others of a kind are in `make secure`; what the rows are about is tested by itself too, where its code is.
SHARED = (
    "no-ticket",
    "others-staging",
    "others-control",
    "other-task",
    "replayed-order",
    "cross-site",
    "half-requests",
    "forged-results",
    "worker-files",
)
# Their own jobs take as long as all of the above.
LONG = ("squatted-tag", "poisoned-cache")
OTHER_USERS = ("neighbours-files",)
# Kinds whose rows take more than `make test` has time for, or a whole Airflow: what in it tests the same.
ELSEWHERE = {
    "tags": "tests/hooks/test_yarn.py",
    "cache": "tests/runtime/launch/test_launcher.py",
    "bombs": "tests/runtime/executor/test_checkpoint_reader.py",
    "forms": "tests/operators/test_asked_for.py",
    "imports": "tests/importers/test_hostile.py",
    "dag": "tests/dags/test_examples.py",
    "lifetimes": "tests/jobs/test_token_renewal.py",
    "proxy": "tests/jobs/test_masters_https.py",
    "frameworks": "tests/cluster/checks/test_open_ports.py",
    "neighbour": "tests/runtime/executor/test_job_files.py",
    "tunnels": "tests/runtime/executor/test_peers.py",
}


@pytest.mark.parametrize("name", SHARED)
def test_an_attempt(secure_hadoop: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(secure_hadoop))


def test_the_job_that_they_attacked_succeeded(
    secure_hadoop: HadoopCluster, new_field: NewField, standing: Standing
) -> None:
    new_field(secure_hadoop)  # alice's ticket
    if standing.running is None:
        pytest.skip("nobody has attacked a job")
    problems = standing.running.finish()
    standing.close()
    assert problems == []


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_an_attempt_with_jobs_of_its_own(secure_hadoop: HadoopCluster, new_field: NewField, name: str) -> None:
    _run(name, new_field(secure_hadoop))


@pytest.mark.long
@pytest.mark.parametrize("name", OTHER_USERS)
def test_an_attempt_from_beside(user_containers: HadoopCluster, new_field: NewField, name: str) -> None:
    field = new_field(user_containers)
    field.standing = None
    _run(name, field)


def test_every_kind_has_a_representative() -> None:
    tested = {ROWS[name].kind for name in SHARED}
    assert {row.kind for row in in_order()} == tested | ELSEWHERE.keys()
    assert [path for path in ELSEWHERE.values() if not (REPOSITORY / path).is_file()] == []


def _run(name: str, field: Field) -> None:
    ROWS[name].run(field)
    field.conclude()
    assert field.problems == []

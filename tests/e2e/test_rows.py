"""One row of each kind of `make e2e`, in one Airflow and, since they wait most of the time, side by side."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import OUTPUT
from tests.e2e.installation import Installation
from tests.e2e.row import ROWS
from tests.e2e.rows import in_order
from tests.e2e.running import run_side_by_side
from tests.row_tables import Outcome

# The others of a kind are in `make e2e`.
REPRESENTATIVES = (
    "supervisor-killed",
    "form",
    "backfill-three",
    "cleared-deferred",
    "mapped",
    "evaluation-cleared",
    "bundle-subfolder",
    "queue-timeout",
    "dags-test",
    "stale-three",
    "triggerer-killed",
)
AT_ONCE = 3


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, installation: Installation) -> dict[str, Outcome]:
    """Of those rows that pytest was asked for, by their names."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    asked = {item.callspec.params.get("name") for item in items if hasattr(item, "callspec")}
    rows = [ROWS[name] for name in REPRESENTATIVES if name in asked]
    return {each.row.name: each for each in run_side_by_side(rows, installation, OUTPUT, AT_ONCE)}


@pytest.mark.timeout(2400)  # the first waits for all of them, and for Airflow to start
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_row(outcomes: dict[str, Outcome], name: str) -> None:
    problems, report = outcomes[name].problems, OUTPUT / name / "report.txt"
    assert problems == [], "\n".join([*problems, report.read_text()])


def test_every_kind_has_a_representative() -> None:
    assert {ROWS[name].kind for name in REPRESENTATIVES} == {row.kind for row in in_order()}

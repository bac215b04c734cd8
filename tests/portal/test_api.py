"""The portal's API, asked through Airflow's own app, database and login."""

from __future__ import annotations

from typing import Any

import pytest

from tests.portal import stored
from tests.portal.conftest import As

CLICKS, DIGITS = stored.application_id(0), stored.application_id(100)
PATHS = [
    "/jobs",
    f"/jobs/{CLICKS}",
    f"/jobs/{CLICKS}/history",
    f"/jobs/{CLICKS}/live",
    f"/jobs/{CLICKS}/logs",
    f"/jobs/{CLICKS}/logs/worker:0",
    f"/compare?ids={CLICKS}",
    "/dags/clicks/dates",
]

pytestmark = pytest.mark.usefixtures("jobs")


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [row["application_id"] for row in answer.json()["jobs"]]


@pytest.mark.parametrize("path", PATHS)
def test_whoever_has_not_logged_in_gets_nothing(client: As, path: str) -> None:
    assert client(None).get(f"/tony/api{path}").status_code == 401


def test_lists(client: As) -> None:
    assert ids(client("alice").get("/tony/api/jobs")) == [DIGITS, *(stored.application_id(day) for day in (3, 1, 0))]

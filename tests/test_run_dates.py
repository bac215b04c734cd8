"""The date of a run: one function decides it, and templates, summaries and notifications name the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG, CronPartitionTimetable, task
from airflow.timetables.base import DataInterval
from airflow.timetables.interval import CronDataIntervalTimetable

from tests.airflow_dags import Run, run_made_with
from tony_provider.notifications.message_source import CallbackEvent
from tony_provider.run_dates import UndatedRun, known_run_date, period_end, run_date

DAY, NEXT_DAY, NOW = (datetime(2026, *day, tzinfo=UTC) for day in ((1, 5), (1, 6), (11, 27)))


@pytest.mark.parametrize(
    ("fields", "date"),
    [
        ({"logical_date": DAY, "run_after": NEXT_DAY}, DAY),
        ({"run_after": NOW}, NOW),
        ({"partition_key": "2026-01-05", "partition_date": DAY, "run_after": NOW}, DAY),
        ({"partition_key": "eu", "partition_date": DAY, "run_after": NOW}, DAY),
        # A user has triggered it: Airflow's form fills in the present as the logical date.
        ({"partition_key": "2026-01-05", "partition_date": DAY, "logical_date": NOW, "run_after": NOW}, DAY),
        ({"partition_key": "2026-01-05", "run_after": NOW}, DAY),
        ({"partition_key": "2026-01-05T00:00:00", "run_after": NOW}, DAY),
        ({"partition_key": "2026-01-05T01:00:00+01:00", "run_after": NOW}, DAY),
        ({"partition_key": "2026-01", "run_after": NOW}, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_date_of_a_run(fields: dict[str, Any], date: datetime) -> None:
    as_json = {name: each.isoformat() if isinstance(each, datetime) else each for name, each in fields.items()}
    for run in (DagRun(dag_id="clicks", run_id="r", **fields), fields, as_json):
        assert run_date(run) == known_run_date(run) == date


@pytest.mark.parametrize("key", ["eu", "20260105", "2026", "2026-13-40", "2026-01-05|eu", "user-2026-01", "2026-01x"])
def test_a_partition_without_a_date(key: str) -> None:
    run = DagRun(dag_id="clicks", run_id="r", partition_key=key, run_after=NOW)
    assert known_run_date(run) is None
    for of in (run_date, period_end):
        with pytest.raises(UndatedRun, match=r"before='2026-01-05'"):
            of(run)


def test_of_nothing() -> None:
    assert known_run_date(None) is None
    assert known_run_date({"dag_run_id": "r"}) is None


def test_the_end_of_a_period() -> None:
    interval = (DAY, NEXT_DAY)
    assert period_end(DagRun(logical_date=DAY, data_interval=interval, run_after=NEXT_DAY)) == NEXT_DAY
    assert period_end(DagRun(run_after=NOW)) == NOW
    made_by_hand = DagRun(partition_key="x", partition_date=DAY, logical_date=NOW, data_interval=(NOW, NOW))
    assert period_end(made_by_hand) == DAY


def named_dates(dag_id: str, schedule: Any, **fields: Any) -> tuple[Run, list[str]]:
    """Which date a real run has in a template and in a mail."""
    mails = []
    with DAG(dag_id, schedule=schedule, start_date=DAY) as dag:

        @task(on_success_callback=lambda context: mails.append(CallbackEvent.of(context).date))
        def tell(day: str) -> str:
            return day

        tell("{{ macros.tony.run_date() | ds }}")
    done = run_made_with(dag, "scheduled__of_a_test", **fields)
    return done, [*([done.results["tell"]] if done.results["tell"] else []), *mails]


def test_a_template_and_a_mail_name_one_date_where_runs_come_a_day_after_their_logical_date(airflow_db: None) -> None:
    """As schedules are with ``[scheduler] create_cron_data_intervals``."""
    daily = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
    interval = DataInterval(start=DAY, end=NEXT_DAY)  # type: ignore[arg-type]
    _, dates = named_dates("dated_late", daily, logical_date=DAY, data_interval=interval, run_after=NEXT_DAY)
    assert dates == ["2026-01-05", "2026-01-05"]


def test_a_template_and_a_mail_name_the_date_of_a_partition(airflow_db: None) -> None:
    daily = CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d")
    _, dates = named_dates("dated_by_partition", daily, partition_key="2026-01-05", partition_date=DAY, run_after=NOW)
    assert dates == ["2026-01-05", "2026-01-05"]


def test_a_template_refuses_a_partition_without_a_date(airflow_db: None) -> None:
    done, _ = named_dates(
        "regions", CronPartitionTimetable("@daily", timezone="UTC"), partition_key="eu", run_after=NOW
    )
    assert isinstance(done.errors["tell"], UndatedRun)
    assert "partition 'eu', which is not a date" in str(done.errors["tell"])

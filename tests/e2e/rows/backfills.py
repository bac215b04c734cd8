"""A year of retraining, in small: dates on their own, and dates that begin with the model of the day before."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.runs import Backfill, Run, runs_of
from tests.e2e.training import Training
from tests.waiting import until
from tony_provider.runtime.storage.base import read_bytes

FIRST_DAY = date(2000, 1, 1)
STEPS = 20
BACKFILL_SECONDS = 600.0


@row("backfill-three", "backfill of 3 dates, 2 at a time")
def backfill_three(field: Field) -> str:
    field.claim("independent")
    days = _free_days(field, "independent", 3)
    Backfill.create(field.rest, "independent", days, at_once=2, conf={"steps": STEPS}).end(BACKFILL_SECONDS)
    trainings = [_training(field, run) for run in _runs(field, "independent", days).values()]
    _states(field, trainings, ["success"] * 3)
    tries = sum(training.task.try_number for training in trainings)
    return f"3 trained in {tries} tries, at most {_at_once(field, trainings, 2)} at a time"


@row("backfill-independent", "backfill of 12 dates, 3 at a time, one fails past its retries; then those that failed")
def backfill_independent(field: Field) -> str:
    field.claim("independent")
    days = _free_days(field, "independent", 12)
    bad = field.installation.diaries / "independent" / f"bad-{days[4]}"
    bad.parent.mkdir(exist_ok=True)
    bad.touch()
    field.at_end(lambda: bad.unlink(missing_ok=True))
    Backfill.create(field.rest, "independent", days, at_once=3, conf={"steps": STEPS}).end(BACKFILL_SECONDS)
    runs = _runs(field, "independent", days)
    trainings = {day: _training(field, run) for day, run in runs.items()}
    states = ["failed" if day == days[4] else "success" for day in days]
    _states(field, list(trainings.values()), states)
    most = _at_once(field, list(trainings.values()), 3)
    before = {day: training.task.facts() for day, training in trainings.items()}
    tried = len(trainings[days[4]].applications())
    field.expect(tried == 4, f"{days[4]} had {tried} applications before it was mended")

    bad.unlink()
    again = Backfill.create(field.rest, "independent", days, at_once=3, reprocess="failed", conf={"steps": STEPS})
    again.end(BACKFILL_SECONDS)
    _states(field, list(trainings.values()), ["success"] * 12)
    touched = [day for day, training in trainings.items() if training.task.facts() != before[day]]
    field.expect(touched == [days[4]], f"the second backfill touched {touched}")
    trainings[days[4]].expected = 5  # four tries, and the backfill of what had failed
    return f"11 trained, at most {most} at a time, one failed four times; then 11 untouched, that one trained"


@row(
    "backfill-chained",
    "backfill of 4 dates, each begins with the model of the one before; the second fails, is cleared",
)
def backfill_chained(field: Field) -> str:
    field.claim("chained")
    days = _free_days(field, "chained", 4)
    bad = field.installation.diaries / "chained" / f"bad-{days[1]}"
    bad.parent.mkdir(exist_ok=True)
    bad.touch()
    field.at_end(lambda: bad.unlink(missing_ok=True))
    backfill = Backfill.create(field.rest, "chained", days, at_once=4, reprocess="failed", conf={"steps": STEPS})
    runs = until(lambda: found if len(found := _runs(field, "chained", days)) == 4 else None, "four runs")
    trainings = [_training(field, runs[day]) for day in days]
    for day, state in zip(days, ["success", "failed"], strict=False):
        # Of the run, not only of the task: Airflow's scheduler dies of a task that is cleared as it fails.
        field.expect(runs[day].end(180) == state, f"{day}: {runs[day].describe()}")
    waiting = [training.task.state for training in trainings[2:]]
    began = [day for day, training in zip(days[2:], trainings[2:], strict=True) if training.applications()]
    field.expect(not began, f"began although the date before them had failed: {began}; {waiting}")

    bad.unlink()
    runs[days[1]].clear()
    trainings[1].expected = 2
    backfill.end(BACKFILL_SECONDS)
    _states(field, trainings, ["success"] * 4)
    sums = [_sum(field, training) for training in trainings]
    one = STEPS * (STEPS + 1) / 2
    field.expect([b - a for a, b in pairwise(sums)] == [one] * 3, f"sums of the models: {sums}")
    order = [training.diary.entries("ended")[-1].at for training in trainings]
    field.expect(order == sorted(order), f"the trainings ended at {order}")
    sizes = [round(each / one) for each in sums]
    return f"two dates waited; after the clear all went on in order, trainings in each model: {sizes}"


def _free_days(field: Field, dag_id: str, count: int) -> list[str]:
    """That no earlier backfill of this Airflow has had."""
    dates = [run.facts()["logical_date"] for run in runs_of(field.rest, dag_id)[-1:]]
    first = datetime.fromisoformat(dates[0]).date() + timedelta(days=1) if dates else FIRST_DAY
    return [str(first + timedelta(days=number)) for number in range(count)]


def _runs(field: Field, dag_id: str, days: list[str]) -> dict[str, Run]:
    """By their dates."""
    found = {}
    for run in runs_of(field.rest, dag_id):
        day = run.facts()["logical_date"][:10]
        if day in days:
            found[day] = run
            if run not in field.runs:
                field.runs.append(run)
    return found


def _training(field: Field, run: Run) -> Training:
    return field.training(run)


def _states(field: Field, trainings: list[Training], states: list[str]) -> None:
    for training, state in zip(trainings, states, strict=True):
        seen = training.task.run.end()
        field.expect(seen == state, f"{training.task.run.run_id}: {training.task.run.describe()}")


def _at_once(field: Field, trainings: list[Training], most: int) -> int:
    """How many of their applications ran side by side, which must not be more than ``most``."""
    spans = [
        (int(each["startedTime"]), int(each["finishedTime"]))
        for training in trainings
        for each in training.applications()
    ]
    seen = max(sum(begin <= start < end for begin, end in spans) for start, _ in spans)
    field.expect(seen <= most, f"{seen} applications ran at once")
    return seen


def _sum(field: Field, training: Training) -> float:
    """Over all steps that are in the model, those of the models that it began with among them."""
    uri = f"{training.task.xcom('model_dir')}/weights.json"
    weights: dict[str, Any] = json.loads(read_bytes(field.hook.storage(), uri))
    return float(weights["sum"])

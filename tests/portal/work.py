"""The jobs that the portal is looked at with: a few dozen, which end in every way that jobs end in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.e2e.runs import Backfill, Run, runs_of
from tests.portal.dags.portal_jobs import ODD
from tests.portal.site import Site
from tests.waiting import until

DAYS = (*range(1, 7), *range(8, 14))  # of January 2026: twelve, and a gap on the 7th
SWEEPS, SWEPT = 2, 6
WORK_SECONDS = 1200.0  # for all jobs, on a machine that is busy
# The day that fails has two tries, like the one that fails once.
JOBS = len(DAYS) + 2 + SWEEPS * SWEPT + len(ODD) + 3  # and the large one, the one that is ended, the one that runs


def loss_of(day: int) -> float:
    """What the program of a day ends with, as portal_fit.py computes it."""
    return 2 * math.exp(-40 / (10 + day)) + 0.05


def date_of(day: int) -> str:
    return f"2026-01-{day:02}"


@dataclass(frozen=True)
class Work:
    """What was done: ``running`` trains on; ``ended``: how the ResourceManager says that each of the others ended."""

    running: Run
    running_id: str
    swept: Run
    ended: dict[str, str]


def work(site: Site) -> None:
    """Raises AssertionError when a run does not get to the end that it was meant to get to."""
    killed, _ = site.trigger("portal_long"), site.trigger("portal_long")
    others = [*(site.trigger("portal_sweep") for _ in range(SWEEPS)), site.trigger("portal_odd")]
    large = site.trigger("portal_large")
    for days in (DAYS[:6], DAYS[6:]):  # the 7th is left out
        Backfill.create(site.rest, "portal_clicks", [date_of(day) for day in days], at_once=3).end(WORK_SECONDS)
    for run in others:
        assert run.end(WORK_SECONDS) == "success", run.describe()
    killed.task().until_watched()
    killed.task().mark("failed")
    assert large.end(WORK_SECONDS) == "failed", large.describe()
    states = {run.facts()["logical_date"][:10]: run.state for run in runs_of(site.rest, "portal_clicks")}
    assert states == {date_of(day): "failed" if day == 4 else "success" for day in DAYS}


def what_was_done(site: Site) -> Work:
    """After ``work``, also that of an earlier process. Raises AssertionError."""
    ended = until(lambda: _ended(site), lambda: f"the ends of {JOBS - 1} applications: {_states(site)}")
    running_id = next(each for each in site.applications() if each not in ended)
    running = next(run for run in runs_of(site.rest, "portal_long") if run.state == "running")
    return Work(running, running_id, runs_of(site.rest, "portal_sweep")[0], ended)


def _ended(site: Site) -> dict[str, str] | None:
    found = {each["id"]: each["finalStatus"] for each in site.applications().values() if each["finishedTime"]}
    return found if len(found) == JOBS - 1 and len(site.applications()) == JOBS else None


def _states(site: Site) -> list[str]:
    return [f"{each['id']} {each['name']} {each['state']}" for each in site.applications().values()]

"""Users see in the browser which models were trained on data that has changed, and repeat their runs."""

from __future__ import annotations

from functools import partial

from tests.browser import browser
from tests.e2e.runs import Backfill, runs_of
from tests.portal.actions import photograph
from tests.portal.seen import JOBS, Pages
from tests.portal.site import VIEWER, Site
from tests.portal.walk import Walk, log_in
from tests.portal.work import WORK_SECONDS, date_of
from tests.waiting import until

DAG = "portal_corrected"
TAB = f"/dags/{DAG}/plugin/trainings"
DAYS = (1, 2, 3)
SECTION = "Models and their data"
CORRECTED = ("1 current", "1 stale", "1 stale by descent")  # after the second day was corrected


def correct_and_repeat(walk: Walk, site: Site) -> None:
    """Raises AssertionError where a page shows something else, or where another run is repeated."""
    for day in DAYS:
        write(site, day, "rows")
    Backfill.create(site.rest, DAG, [date_of(day) for day in DAYS], at_once=1, reprocess="failed").end(WORK_SECONDS)
    before = tries(site)
    compare(walk.pages, "3 current")
    write(site, 2, "ROWS")
    compare(walk.pages, *CORRECTED)
    walk.pages.open(f"{JOBS}?dag_id={DAG}&text={date_of(2)}")
    walk.pages.see("table.jobs")
    path = f"{JOBS}?job={max(walk.said())}"
    walk.pages.open(path)
    walk.pages.see_in("Training data", "The files have changed after the training read them")
    walk.pages.press("1 changed file", "summary")
    walk.pages.see_in("Training data", file(2))
    photograph(walk, path, "job-stale")
    not_permitted(site)
    assert tries(site) == before

    compare(walk.pages, *CORRECTED)
    walk.pages.press("Repeat 2 runs")
    walk.pages.see_in(SECTION, "All models are current or unknown.", WORK_SECONDS)
    after = tries(site)
    repeated = {day for day in before if after[day] != before[day]}
    assert repeated == {date_of(2), date_of(3)}, (before, after)
    print("a user found the models whose data had changed, and repeated only their runs", flush=True)


def not_permitted(site: Site) -> None:
    """A user who may not edit the DAG sees the same states, and cannot repeat a run."""
    with browser(1400, 1000) as driver:
        log_in(driver, site.airflow.url, VIEWER)
        pages = Pages(driver, site.airflow.url)
        compare(pages, *CORRECTED)
        pages.press("Repeat 2 runs")
        pages.see_in(SECTION, "A run cannot be repeated:")


def compare(pages: Pages, *states: str) -> None:
    pages.open(TAB)
    pages.press("Compare the models with their data")
    said = partial(pages.texts, "section [role=status]")
    until(lambda: any(set(each.split(", ")) == set(states) for each in said()), lambda: f"{states}; there is {said()}")


def file(day: int) -> str:
    return f"/user/alice/portal-rows/{date_of(day)}/part-0"


def write(site: Site, day: int, text: str) -> None:
    site.hook.storage().write(f"{site.hadoop.fs_default}{file(day)}", text.encode(), overwrite=True)


def tries(site: Site) -> dict[str, int]:
    """How often each date was trained."""
    runs = runs_of(site.rest, DAG)
    return {run.facts()["logical_date"][:10]: run.task("train").facts()["try_number"] for run in runs}

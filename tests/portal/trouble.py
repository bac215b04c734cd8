"""The portal where something is missing: rights, the application master, HDFS."""

from __future__ import annotations

import os
import signal
import time

from tests.browser import browser
from tests.jobs.job import Job
from tests.portal.seen import JOBS, Pages
from tests.portal.site import OTHER, Site
from tests.portal.walk import Walk, log_in
from tests.portal.work import SWEEPS, SWEPT, Work
from tests.waiting import until

NOBODYS = "application_1767600000000_99999"


def without_rights(site: Site, work: Work) -> None:
    """Who may read one DAG finds its jobs, and nothing of the others' by whatever address."""
    with browser(1400, 1000) as driver:
        log_in(driver, site.airflow.url, OTHER)
        pages = Pages(driver, site.airflow.url)
        pages.open(JOBS)
        until(lambda: len(pages.all("table.jobs tbody tr")) == SWEEPS * SWEPT, "the jobs of the mapped DAG")
        for path in (f"{JOBS}?job={work.running_id}", f"{JOBS}?compare={work.running_id}"):
            pages.open(path)
            pages.see_text("not found, or you may not read it")
        pages.open(f"{JOBS}?text=clicks")
        pages.see_text("No job that you may read matches these filters.")
        pages.open("/dags/portal_clicks/plugin/trainings")
        until(lambda: "Forbidden" in driver.page_source or pages.all(".problem"), lambda: driver.page_source[-500:])
        assert "application_" not in driver.page_source
    rest = site.rest_of(OTHER)
    for end in ("", "/history", "/live", "/logs", "/logs/worker:0"):
        hidden = rest.ask(f"/tony/api/jobs/{work.running_id}{end}")
        nothing = rest.ask(f"/tony/api/jobs/{NOBODYS}{end}")
        assert hidden == nothing, (hidden, nothing)
        assert hidden[0] == 404
    assert rest.ask(f"/tony/api/compare?ids={work.running_id}") == rest.ask(f"/tony/api/compare?ids={NOBODYS}")
    assert rest.ask("/tony/api/dags/portal_clicks/dates") == rest.ask("/tony/api/dags/nobodys/dates")


def master_killed(walk: Walk, site: Site, work: Work) -> None:
    """The page of its job tells what is known, then what the next master says, without being opened again."""
    walk.job(work.running_id)
    walk.pages.see_in("Progress", "step ")
    identity = site.hook.identity(dag_id="portal_long", run_id=work.running.run_id, task_id="train")
    job = Job(site.hook, identity, work.running_id, site.place.log_folders)
    os.kill(job.master().pid, signal.SIGKILL)
    seen = set()

    def recovered() -> bool:
        seen.add(walk.pages.section("Progress"))
        return job.status().am_attempt == 2 and "RUNNING" in walk.pages.section("Progress")

    until(recovered, job.describe)
    before = walk.pages.section("Progress")

    def is_newer() -> bool:
        now = walk.pages.section("Progress")
        return now != before and "step " in now

    until(is_newer, lambda: before)
    walk.pages.open(f"{JOBS}?job={work.running_id}")
    walk.pages.see_in("Timeline", "recover")
    print(f"the master was killed; the page said {len(seen)} things meanwhile, and goes on", flush=True)


def hdfs_away(walk: Walk, site: Site) -> None:
    """Lists and summaries are there; what needs the store says that it is out of reach, also where nobody answers."""
    application_id = walk.of_day(13)
    for how, number, mend in (("silent", signal.SIGSTOP, _go_on), ("gone", signal.SIGKILL, _restart)):
        site.hadoop.kill("namenode", number)
        try:
            walk.jobs()
            began = time.monotonic()
            walk.job(application_id)
            assert "40 of 40" in walk.pages.section("Summary")
            until(lambda: len(walk.pages.all("section canvas")) >= 2, "the curves of the summary")
            until(lambda: walk.pages.texts(".problem"), "that the store is out of reach")
            told = walk.pages.texts(".problem")[0]
            print(f"HDFS {how}: after {time.monotonic() - began:.1f} s the page says {told!r}", flush=True)
            walk.keep(f"{JOBS}?job={application_id}", f"hdfs-{how}")
        finally:
            mend(site)
    walk.succeeded(application_id)


def _go_on(site: Site) -> None:
    site.hadoop.kill("namenode", signal.SIGCONT)


def _restart(site: Site) -> None:
    site.hadoop.restart("namenode")

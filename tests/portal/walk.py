"""A walk through all pages of the portal, which compares what they say with what the jobs have done."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser import complaints, prefer
from tests.portal.seen import JOBS, Pages
from tests.portal.site import Site
from tests.portal.work import DAYS, SWEPT, Work, date_of, loss_of
from tests.waiting import until

# By the address of the link to a job: the state in its row.
STATES = """
return Object.fromEntries([...document.querySelectorAll(".tony-portal table.jobs tbody tr")].map(
  (row) => [new URL(row.querySelector("th a").href).searchParams.get("job"), row.querySelector(".badge").innerText]))
"""
PHONE = 390  # pixels
WIDTH = 1400


class Walk:
    """Pictures go to ``folder``."""

    def __init__(self, driver: Chrome, site: Site, work: Work, folder: Path) -> None:
        self.pages = Pages(driver, site.airflow.url)
        self.driver = driver
        self.site = site
        self.work = work
        self.folder = folder
        self.lost: set[str] = set()

    def everywhere(self) -> None:
        """Raises AssertionError where a page says something else."""
        self.jobs()
        self.filters()
        for day, says in {4: self.failed, 6: self.restarted, 9: self.resumed, 13: self.succeeded}.items():
            says(self.of_day(day))
        self.ends_of_lost()
        self.never_started()
        self.odd()
        self.running()
        self.comparison()
        self.dates()
        self.task_tab()
        said = complaints(self.driver)
        assert said == [], said
        self.pictures()

    def of_day(self, day: int) -> str:
        """The newest job of that day, by the list; ids count up."""
        self.pages.open(f"{JOBS}?dag_id=portal_clicks&text={date_of(day)}")
        self.pages.see("table.jobs")
        return max(self.said())

    def said(self) -> dict[str, str]:
        return dict(self.driver.execute_script(STATES))

    def jobs(self) -> None:
        """Of a job that was killed while its task was deferred no task could record the end; nor of one whose task
        Airflow has taken for dead, as it does on a busy machine. Their pages ask the cluster in place of the database.
        """
        self.pages.open(JOBS)

        def differ() -> dict[str, str]:
            expected = {**self.work.ended, self.work.running_id: "RUNNING"}
            said = self.said()
            self.lost = {each for each, state in said.items() if state == "LOST"}
            return {each: state for each, state in expected.items() if said.get(each) not in (state, "LOST")}

        until(lambda: not differ(), lambda: f"{differ()}; the list has {self.said()}")
        assert self.lost >= {each for each, state in self.work.ended.items() if state == "KILLED"}

    def ends_of_lost(self) -> None:
        for application_id in sorted(self.lost):
            self.job(application_id)
            self.pages.see_in("End of the job", self.work.ended[application_id])

    def filters(self) -> None:
        """By hand, and from the address."""
        found = {each for each, state in self.work.ended.items() if state == "FAILED"} - self.lost
        self.pages.open(JOBS)
        self.pages.see("select[name=verdict] option[value=FAILED]").click()
        until(lambda: set(self.said()) == found, lambda: f"{found}; the list has {self.said()}")
        assert "verdict=FAILED" in self.driver.current_url
        self.pages.open(f"{JOBS}?dag_id=portal_sweep&run_id={self.work.swept.run_id.replace('+', '%2B')}")
        until(lambda: len(self.said()) == SWEPT, lambda: f"{SWEPT} jobs of a run; the list has {self.said()}")

    def job(self, application_id: str) -> None:
        self.pages.open(f"{JOBS}?job={application_id}")
        self.pages.section("Run")

    def head(self) -> str:
        return self.pages.texts("header")[0]

    def failed(self, application_id: str) -> None:
        self.job(application_id)
        assert "FAILED" in self.head()
        until(lambda: "the data of this day are empty" in self.head(), lambda: f"the cause in {self.head()}")
        assert len(self.pages.texts("section li a")) >= 1, "the other try"

    def restarted(self, application_id: str) -> None:
        self.job(application_id)
        assert "Restarts\n1" in self.pages.section("Summary")
        self.pages.see_in("Timeline", "a fault that a restart mends")

    def resumed(self, application_id: str) -> None:
        self.job(application_id)
        assert "Resumed from step\n20" in self.pages.section("Summary")
        assert "Compare the tries" in self.pages.section("Other tries of this task")

    def succeeded(self, application_id: str) -> None:
        self.job(application_id)
        results = self.pages.section("Results")
        assert f"loss\n{loss_of(13):.5g}" in results, results
        assert "40 of 40" in self.pages.section("Summary")
        until(lambda: len(self.pages.all("section canvas")) >= 2, "the curves")
        self.pages.see_in("Changes since the previous run", "portal_fit.py 13 well")
        self.pages.press("Output of the tasks", "summary")
        self.pages.see_in("Logs", "day 13 ends with")
        self.pages.press("As written", "summary")
        self.pages.see_in("Specification", "portal_fit.py")

    def never_started(self) -> None:
        self.pages.open(f"{JOBS}?dag_id=portal_large")
        self.pages.see("table.jobs")
        application_id = next(iter(self.said()))
        self.job(application_id)
        until(lambda: "the queue had no room for 15 s" in self.pages.texts("article")[0], "why it never started")

    def odd(self) -> None:
        """Nothing of a metric's name is run, and what cannot be drawn is told."""
        self.pages.open(f"{JOBS}?dag_id=portal_odd")
        self.pages.see("table.jobs")
        found = sorted(self.said())
        told = {"<img src=x onerror=alert(1)>": False, "NaN": False, "more metrics": False}
        for application_id in found:
            self.job(application_id)
            until(lambda: not self._loading(), "what is loading")
            page = "\n".join(self.pages.texts("article"))
            told = {each: seen or each in page for each, seen in told.items()}
        assert all(told.values()), told
        assert not self.pages.all("img")

    def running(self) -> None:
        self.job(self.work.running_id)
        self.pages.see_in("Progress", "step ")
        now = self.pages.section("Progress")
        until(lambda: self.pages.section("Progress") != now, "a newer status")

    def comparison(self) -> None:
        chosen = [self.of_day(day) for day in (1, 5, 13)]
        self.pages.open(f"{JOBS}?compare={','.join(chosen)}")
        self.pages.see_text("Comparison of 3 jobs")
        self.pages.see_in("Differences", "tasks.worker.command")
        self.pages.see_in("Summary", "Phase: Training")
        figures = self.pages.section("Metrics and parameters")
        for day in (1, 5, 13):
            assert f"{loss_of(day):.5g}" in figures, (day, figures)

    def dates(self) -> None:
        self.pages.open("/dags/portal_clicks/plugin/trainings?metric=loss")
        self.pages.see_in("train", "1 without a job (gap)")
        rows = {row.split()[0]: row for row in self.pages.texts("section table tbody tr")}
        for day in DAYS:
            if day != 4:
                assert f"{loss_of(day):.5g}" in rows[date_of(day)], rows[date_of(day)]
        assert "FAILED" in rows[date_of(4)]
        assert "no job" in rows[date_of(7)]

    def task_tab(self) -> None:
        run = self.work.swept.run_id.replace("+", "%2B")
        self.pages.open(f"/dags/portal_sweep/runs/{run}/tasks/train/mapped/3/plugin/training")
        self.pages.section("Run")
        self.pages.press("As written", "summary")
        self.pages.see_in("Specification", "portal_fit.py 3 well")

    def pictures(self) -> None:
        days = {each: self.of_day(day) for each, day in {"failed": 4, "restarted": 6, "succeeded": 13}.items()}
        compared = f"{JOBS}?compare={','.join(days.values())}"
        shown = {f"job-{each}": f"{JOBS}?job={application_id}" for each, application_id in days.items()}
        shown |= {"job-running": f"{JOBS}?job={self.work.running_id}", "compare": compared, "jobs": JOBS}
        shown |= {"dates": "/dags/portal_clicks/plugin/trainings?metric=loss"}
        for theme in ("light", "dark"):
            prefer(self.driver, theme)
            for name, path in shown.items():
                self.keep(path, f"{name}-{theme}", WIDTH)
        prefer(self.driver, "light")
        for name, path in shown.items():
            self.keep(path, f"{name}-phone", PHONE)

    def _loading(self) -> bool:
        return any(each.startswith("Loading") for each in self.pages.texts("p"))

    def keep(self, path: str, name: str, width: int = WIDTH) -> None:
        """The whole page, which must not be wider than its window."""
        size: dict[str, object] = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width == PHONE}
        self._resize(size)
        self.pages.open(path)
        self.pages.see("section, table, .problem")
        until(lambda: not self._loading(), "what is loading")
        assert self.driver.execute_script("return document.documentElement.scrollWidth") <= width, path
        height = self.driver.execute_script("return document.querySelector('.tony-portal').scrollHeight") + 250
        self._resize({**size, "height": max(800, min(6000, height))})
        self.driver.save_screenshot(str(self.folder / f"{name}.png"))
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def _resize(self, size: dict[str, object]) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def log_in(driver: Chrome, url: str, user: str) -> None:
    """By Airflow's own form."""
    driver.delete_all_cookies()
    driver.get(f"{url}{JOBS}")
    find = partial(driver.find_elements, By.CSS_SELECTOR)
    until(lambda: find("input[name=password]"), lambda: f"a form; there is {driver.current_url}")
    for name in ("username", "password"):
        find(f"input[name={name}]")[0].send_keys(user)
    find("button[type=submit]")[0].click()
    until(lambda: "/auth/login" not in driver.current_url, "the login")
    complaints(driver)  # of Airflow's own pages: that nobody had logged in

"""A walk through all pages of the portal, which compares what they say with what the jobs have left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from selenium.webdriver import Chrome

from tests.browser import complaints, prefer
from tests.portal.seen import JOBS, Pages
from tests.waiting import until

# By the address of the link to a job: the state in its row.
STATES = """
return Object.fromEntries([...document.querySelectorAll(".tony-portal table.jobs tbody tr")].map(
  (row) => [new URL(row.querySelector("th a").href).searchParams.get("job"), row.querySelector(".badge").innerText]))
"""


class Walk:
    """``ended``: the state of each application that is over, by its id. Pictures go to ``folder``."""

    def __init__(self, driver: Chrome, url: str, folder: Path, ended: Mapping[str, str]) -> None:
        self.pages = Pages(driver, url)
        self.folder = folder
        self.ended = ended

    def everywhere(self) -> None:
        """Raises AssertionError where a page says something else."""
        for theme in ("light", "dark"):
            prefer(self.pages.driver, theme)
            self.jobs(theme)
            for state in sorted({*self.ended.values()}):
                self.job(next(each for each, was in self.ended.items() if was == state), state, theme)
            self.running_job(theme)
            self.comparison(theme)
            self.dates(theme)
        assert complaints(self.pages.driver) == []

    def jobs(self, theme: str) -> None:
        self.pages.open(JOBS)
        self.pages.see("table.jobs")
        said = self.pages.driver.execute_script(STATES)
        assert {each: state for each, state in said.items() if each in self.ended} == self.ended
        assert [state for each, state in said.items() if each not in self.ended] == ["RUNNING"]
        self._keep(f"jobs-{theme}")

    def job(self, application_id: str, state: str, theme: str) -> None:
        self.pages.open(f"{JOBS}?job={application_id}")
        until(lambda: state in self.pages.texts("h1 .badge"), lambda: f"{state} in {self.pages.texts('h1')}")
        self.pages.section("Time line")
        self._keep(f"job-{state.lower()}-{theme}")

    def running_job(self, theme: str) -> None:
        self.pages.open(f"{JOBS}?verdict=RUNNING")
        self.pages.see("table.jobs th a").click()
        self.pages.see("progress")
        self._keep(f"job-running-{theme}")

    def comparison(self, theme: str) -> None:
        chosen = [each for each, state in self.ended.items() if state == "SUCCEEDED"][:3]
        self.pages.open(f"{JOBS}?compare={','.join(chosen)}")
        self.pages.see_text("Comparison of 3 jobs")
        self.pages.section("What differs")
        self._keep(f"compare-{theme}")

    def dates(self, theme: str) -> None:
        self.pages.open("/dags/portal_clicks/plugin/trainings")
        self.pages.section("The same as a table")
        links = self.pages.texts("section table td:nth-child(3) a")
        assert set(links) <= set(self.ended)
        assert len(links) > 5
        self._keep(f"dates-{theme}")

    def _keep(self, name: str) -> None:
        """The whole page."""
        driver = self.pages.driver
        height = driver.execute_script("return document.querySelector('.tony-portal').scrollHeight") + 250
        size = {"width": 1400, "height": max(800, min(5000, height)), "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        until(lambda: not any(each.startswith("Loading") for each in self.pages.texts("p")), "what is loading")
        driver.save_screenshot(str(self.folder / f"{name}.png"))
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

"""How long pages take in a browser, among 10,000 jobs in Airflow's database."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

from tests.portal import stored
from tests.portal.seen import JOBS, Pages
from tests.portal.site import REPOSITORY, Site
from tests.waiting import until

TIMES = 5


def measure(pages: Pages, site: Site) -> None:
    """Prints, of each page, the seconds from the click to what it shows: the first time, and the middle of the next."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.portal.many", "fill"],
        cwd=REPOSITORY,
        env={**os.environ, "TONY_MANY_DATABASE": site.airflow.variables["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip(), flush=True)
    one, other = stored.application_id(77), stored.application_id(1234)
    shown = {
        JOBS: "table.jobs",
        f"{JOBS}?text=many_03&verdict=RUNNING": "table.jobs, .empty",
        f"{JOBS}?order=-memory&offset=9000": "table.jobs",
        f"{JOBS}?job={one}": "article section canvas",
        f"{JOBS}?compare={one},{other}": "section canvas",
        "/dags/many_03/plugin/trainings": "section canvas",
    }
    for path, css in shown.items():
        taken = [_seconds(pages, path, css) for _ in range(TIMES)]
        print(f"{path:<75} first {taken[0]:.2f} s, then {median(taken[1:]):.2f} s", flush=True)


def _seconds(pages: Pages, path: str, css: str) -> float:
    """As within Airflow: its page is there, and the portal's is gone to."""
    pages.open("/dags")
    until(lambda: pages.driver.execute_script("return document.querySelector('nav') !== null"), "Airflow's own page")
    began = time.monotonic()
    pages.driver.execute_script(
        "history.pushState({}, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate'))", path
    )
    until(lambda: pages.all(css), lambda: f"{css} on {pages.driver.current_url}", period=0.02)
    return time.monotonic() - began

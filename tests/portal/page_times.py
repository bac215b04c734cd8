"""How long pages take in a browser, among 10,000 jobs in Airflow's database."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from tests.portal import stored
from tests.portal.seen import JOBS, Pages
from tests.portal.site import REPOSITORY, Site
from tests.waiting import until

TIMES = 5
# Milliseconds.
_SINCE = """
const own = performance.getEntriesByType("resource").filter((each) => /\\/tony\\/.*\\.js$/.test(each.name));
return performance.now() - Math.min(...own.map((each) => each.startTime));
"""


def measure(pages: Pages, site: Site) -> None:
    """Prints, of each page, the seconds until it shows what it is for: the first time, and the middle of the next.

    The first of all is asked for as soon as an API server answers that has never seen these jobs.
    """
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
    site.airflow.kill("api-server")
    site.airflow.begin_again("api-server")
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
    """From the first thing of the portal that the browser asks for; what is before that is Airflow's own."""
    pages.open(path)
    until(lambda: pages.all(css), lambda: f"{css} on {pages.driver.current_url}", period=0.02)
    return float(pages.driver.execute_script(_SINCE)) / 1000

"""``python -m tests.portal``: a whole Airflow, a real YARN, a few dozen jobs, and a browser: ``make portal``.

It clicks through every page and compares what they say with the jobs; then once more with a user who may read little,
with the application master killed, and with HDFS away; at last among 10,000 further jobs. Screenshots go to
``test-output/portal``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of this process; read when Airflow is imported
from tests.browser import browser
from tests.portal import actions, corrected, page_times, trouble
from tests.portal.site import READER, REPOSITORY, Site, site
from tests.portal.walk import Walk, log_in
from tests.portal.work import JOBS, what_was_done, work

FOLDER = REPOSITORY / "test-output" / "portal"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portal", description=__doc__)
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".tony" / "portal", help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave all of it running, with its jobs, for the next call")
    arguments = parser.parse_args()
    root = arguments.root.absolute()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with site(root, keep=arguments.keep) as here:
        if len(here.applications()) < JOBS:
            work(here)
        see(here)
    if not arguments.keep:
        shutil.rmtree(root, ignore_errors=True)
    return 0


def see(here: Site) -> None:
    """Raises AssertionError where a page says something else."""
    done = what_was_done(here)
    print(f"{JOBS} jobs: {sorted(done.ended.values())} and one that runs", flush=True)
    with browser(1400, 1000) as driver:
        log_in(driver, here.airflow.url, READER)
        walk = Walk(driver, here, done, FOLDER)
        walk.everywhere()
        print("every page says what the jobs did", flush=True)
        actions.every_action(walk, here)
        actions.refused(walk, here)
        corrected.correct_and_repeat(walk, here)
        trouble.without_rights(here, done)
        print("who may read one DAG finds nothing of the others", flush=True)
        trouble.master_killed(walk, here, done)
        trouble.hdfs_away(walk, here)
        page_times.measure(walk.pages, here)
    print(f"pictures: {FOLDER}")


if __name__ == "__main__":
    sys.exit(main())

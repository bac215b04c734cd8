"""``python -m tests.portal``: real jobs, Airflow's own pages, and a browser that clicks through them: ``make portal``.

The jobs run on the embedded local cluster, and their DAGs one after the other without a scheduler. Screenshots go to
``test-output/portal``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tests.airflow_home as home  # names Airflow's home before anything imports Airflow

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of this process; read when Airflow is imported
os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] = "True"
from airflow.api_fastapi.app import create_app

from tests.browser import browser
from tests.jobs.places import LocalPlace
from tests.portal.served import served
from tests.portal.walk import Walk
from tests.waiting import until

DATES = [f"2026-01-{day:02}" for day in (5, 6, 7, 8, 10, 11)]  # not the 9th: a gap
DAGS = Path(__file__).parent / "dags"
RUN_SECONDS = 600.0
FOLDER = Path(__file__).parents[2] / "test-output" / "portal"


def main() -> int:
    # A YarnPlace of a cluster that `make hadoop` has started can stand here: nothing else knows which it is.
    place = LocalPlace(root=home.HOME / "jobs")
    os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(place.connection)
    home.migrate()
    for dag_id, dates in (("portal_clicks", DATES), ("portal_sweep", [])):
        if train(dag_id, *dates).wait(RUN_SECONDS) != 0:
            print(log(dag_id).read_text(), file=sys.stderr)
            return 1
    long = train("portal_long")
    hook = place.hook()
    try:
        until(lambda: any(each.tracking_url for each in hook.live()), lambda: log("portal_long").read_text())
        FOLDER.mkdir(parents=True, exist_ok=True)
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"  # not of those that run tasks
        with served(create_app(apps="core")) as url, browser(1400, 1000) as driver:
            Walk(driver, url, FOLDER, ended(place)).everywhere()
    finally:
        for application in hook.live():
            hook.kill(application.id, "the portal has been seen")
        long.wait(RUN_SECONDS)
        place.close()
    print(f"the pages say of {len(ended(place))} jobs what these have left; pictures: {FOLDER}")
    return 0


def train(dag_id: str, *dates: str) -> subprocess.Popen[bytes]:
    """Begin it; its output is in Airflow's home."""
    command = [sys.executable, "-m", "tests.portal.train", dag_id, *dates]
    environment = {**os.environ, "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS)}
    with log(dag_id).open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)


def log(dag_id: str) -> Path:
    return home.HOME / f"{dag_id}.log"


def ended(place: LocalPlace) -> dict[str, str]:
    """How each application has ended, by its own result."""
    found = [json.loads(path.read_text()) for path in place.root.rglob("result.json")]
    return {each["application_id"]: each["state"] for each in found}


if __name__ == "__main__":
    sys.exit(main())

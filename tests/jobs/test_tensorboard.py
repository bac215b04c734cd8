"""TensorBoard of a real job: what its tasks write, drawn in a real browser through YARN's own proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from selenium.webdriver.common.by import By

from tests.browser import PICTURES, browser, complaints, is_drawn, photograph
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, YarnPlace
from tests.jobs.test_page import go as go
from tests.jobs.test_page import secret_of, url_of
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.storage.base import read_bytes, walk

WRITER = str(Path(__file__).with_name("writer.py"))
SERIES = "experiment/defaultExperimentId/data/plugin/timeseries/timeSeries"
# The paths that a chart draws its curves by, smoothed and as they are.
CURVES = """
return [...document.querySelectorAll('card-view line-chart .series-view svg > path')].map(p => p.getAttribute('d'))
"""
ANSWERS = """
return performance.getEntriesByType('resource').filter(entry => entry.name.includes(arguments[0]))
  .map(entry => [entry.responseStatus, entry.decodedBodySize])
"""


def watched(go: Path, first: int, last: int, **fields: Any) -> dict[str, Any]:
    return {
        "framework": "standalone",
        "am": {"memory": "256MiB"},
        "env": {"GO": str(go)},
        "files": [WRITER],
        "python_env": sys.prefix,  # the only one here that has tensorboard
        "restart": {"budget": 0},
        "tasks": {"worker": {"memory": "256MiB", "command": f"python writer.py {first} {last}"}},
        "tensorboard": {"memory": "512MiB"},
        **fields,
    }


def written(job: Job) -> None:
    job.until(JobState.RUNNING)
    job.until_said("worker:0", "written")


def chain(job: Job) -> str:
    return f"{job.directory.partition('/applications/')[0]}/chain-0001"


def kept(job: Job) -> list[str]:
    """The event files that the store has, with their tasks."""
    top = f"{chain(job)}/tensorboard"
    found = [status.path for status in walk(job.hook.storage(), top) if not status.is_directory]
    return [path.removeprefix(f"{top}/") for path in found]


@pytest.mark.long
def test_a_curve_is_drawn_through_yarns_proxy(yarn: YarnPlace, go: Path) -> None:
    job = yarn.submit(watched(go, 1, 20))
    written(job)
    url = url_of(job)
    with browser() as driver:
        driver.get(url)
        until(lambda: driver.find_elements(By.LINK_TEXT, "TensorBoard"), job.describe)[0].click()
        until(lambda: driver.title == "training", job.describe)  # its own; ours waits for it while it is starting
        assert driver.current_url.startswith(f"{url}tensorboard/")
        until(lambda: "worker-0" in requests.get(f"{url}tensorboard/data/runs", timeout=40).text, job.describe)

        driver.get(f"{url}tensorboard/?forceSVG=true")
        until(lambda: driver.execute_script(CURVES), job.describe)
        assert [status for status, size in driver.execute_script(ANSWERS, SERIES) if size > 500] == [200]
        assert len(driver.execute_script(CURVES)[0].split("L")) == 19
        photograph(driver, "tensorboard-svg")

        driver.get(f"{url}tensorboard")  # as people type it, and as they see it: a canvas
        until(lambda: is_drawn(driver, "card-view line-chart .series-view"), job.describe)
        driver.save_screenshot(str(PICTURES / "tensorboard-timeseries.png"))
        assert driver.current_url.startswith(f"{url}tensorboard/")

        driver.get("about:blank")
        driver.get(f"{url}tensorboard/#scalars")
        until(lambda: any(size > 500 for _, size in driver.execute_script(ANSWERS, "scalars_multirun")), job.describe)
        photograph(driver, "tensorboard-scalars")
        assert [message for message in complaints(driver) if "Failed to load" in message or "Refused" in message] == []
    go.touch()
    job.succeeded()
    assert_nothing_left(yarn, job)
    (events,) = kept(job)
    assert events.startswith("worker-0/events.out.tfevents.")
    assert b"loss" in read_bytes(job.hook.storage(), f"{chain(job)}/tensorboard/{events}")


def asking(place: LocalPlace, job: Job) -> Callable[[], dict[str, list[int]]]:
    """The steps of the loss that TensorBoard shows, by run, as its page asks for them."""
    form = f"requests={json.dumps([{'plugin': 'scalars', 'tag': 'loss'}])}"
    posted = {"type": "application/x-www-form-urlencoded", "body": form}
    auth = ("anybody", secret_of(place, job))

    def steps() -> dict[str, list[int]]:
        answer = requests.put(f"{url_of(job)}tensorboard/{SERIES}", json=posted, auth=auth, timeout=40)
        if answer.status_code == 503:
            return {}
        assert answer.status_code == 200, answer.text
        runs = answer.json()[0].get("runToSeries", {})
        return {run: sorted(point["step"] for point in points) for run, points in runs.items()}

    return steps


@pytest.mark.long
def test_a_retry_goes_on_with_the_curve(local: LocalPlace, go: Path) -> None:
    job = local.submit(watched(go, 1, 5))
    written(job)
    go.write_text("1")
    job.failed()
    assert len(kept(job)) == 1
    go.unlink()

    spec = parse_job(watched(go, 1, 5))
    again = Job(
        job.hook, job.identity, job.hook.submit(SubmissionRequest(spec, job.identity)).application_id, job.log_folders
    )
    try:
        written(again)
        steps = asking(local, again)
        both = until(lambda: found if len((found := steps()).get("worker-0", [])) >= 9 else None, again.describe)
        assert both == {"worker-0": [1, 1, 2, 2, 3, 3, 4, 4, 5]}
        assert len(kept(again)) == 2
    finally:
        go.write_text("")
        again.end()
    again.succeeded()


def test_without_tensorboard_in_its_environment_a_job_only_warns(local: LocalPlace, go: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    worker = {"memory": "128MiB", "command": 'until test -e "$GO"; do sleep 0.1; done'}
    job = local.submit(watched(go, 1, 5, python_env=str(bare), tasks={"worker": worker}, restart={"budget": 3}))
    until(lambda: job.until(JobState.RUNNING).tasks[1].state is TaskState.FAILED, job.describe)
    auth = ("anybody", secret_of(local, job))
    page = requests.get(f"{url_of(job)}tensorboard/", auth=auth, timeout=40)
    assert "TensorBoard has ended" in page.text
    go.touch()

    status = job.succeeded()

    (warning,) = status.warnings
    assert warning.startswith("tensorboard:0")
    assert "No module named 'tensorboard'" in warning
    assert "python_env" in warning
    assert status.restarts == 0


def test_a_side_car_of_the_authors_own_is_left_alone(local: LocalPlace, go: Path) -> None:
    once_it_is_up = 'test -d "$TONY_TENSORBOARD_DIR" || exit; until test -e "$GO"; do sleep 0.1; done'
    tasks = {
        "worker": {"memory": "128MiB", "command": once_it_is_up},
        "tensorboard": {"memory": "128MiB", "command": 'echo my own; touch "$GO"; exec sleep 1000'},
    }
    job = local.run({"env": {"GO": str(go)}, "tasks": tasks})
    job.succeeded()
    assert "my own" in job.log("tensorboard:0")

"""The page of a real job, while it runs: for programs, and in a real browser, through YARN's own proxy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser import PICTURES, browser, complaints, photograph, prefer
from tests.hadoop.client import HttpError
from tests.jobs.job import Job
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.permissions import open_to_all
from tests.waiting import until
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.status import JobState, JobStatus

NAME = "digits <b>bold</b> & train"
# Its metrics and output hold what a browser must not take for HTML.
TRAIN = r"""
echo "first words"
step=0
until test -e "$GO"; do
  step=$((step + 1))
  echo "{\"step\": $step, \"total_steps\": 2000, \"<img src=x onerror=alert(1)>\": 0.$step}" >> $TONY_METRICS_FILE
  echo "step $step <script>alert(2)</script>"
  sleep 0.1
done
"""

# Alice's: without Kerberos whoever says a name has it.
ORDER = """
const [done] = arguments;
const order = {method: "PUT", headers: {"Content-Type": "application/json"}, body: JSON.stringify({reason: "gotcha"})};
fetch(location.pathname + "control/stop?user.name=alice", order)
  .then(async (answer) => done([answer.status, await answer.text()]), (error) => done([0, String(error)]));
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The trainings end when this is there, in a directory that any user may read."""
    open_to_all(tmp_path)
    return tmp_path / "go"


def training(place: Place, go: Path, **fields: Any) -> Job:
    tasks = {"worker": {"instances": 2, "memory": "128MiB", "command": TRAIN}}
    job = place.submit({"name": NAME, "env": {"GO": str(go)}, "tasks": tasks, **fields})
    job.until(JobState.RUNNING)
    return job


def url_of(job: Job) -> str:
    url = job.application().tracking_url
    assert url
    assert url.endswith("/")
    return url


def secret_of(place: LocalPlace, job: Job) -> str:
    secret = master_files.read_tracking_secret(place.root / "cluster" / "applications" / job.id)
    assert secret
    return secret


@pytest.fixture
def asking(place: Place) -> Callable[[Job, str], requests.Response]:
    """``asking(job, path)``: what is at this path of the job's page, for its owner, as a program or a browser asks."""

    def ask(job: Job, path: str) -> requests.Response:
        auth = ("anybody", secret_of(place, job)) if isinstance(place, LocalPlace) else None
        accept = "*/*" if path else "text/html"
        return requests.get(f"{url_of(job)}{path}", headers={"Accept": accept}, auth=auth, timeout=20)

    return ask


def kind_of(answer: requests.Response) -> str:
    """YARN's proxy spells it in its own way."""
    return answer.headers["Content-Type"].replace(" ", "").lower()


def test_a_running_job_shows_its_state_its_tasks_and_what_they_print(
    place: Place, go: Path, asking: Callable[[Job, str], requests.Response]
) -> None:
    job = training(place, go)

    page = until(lambda: answer if "steps/s" in (answer := asking(job, "")).text else None, job.describe)
    assert kind_of(page) == "text/html;charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for part in ("digits &lt;b&gt;bold&lt;/b&gt; &amp; train", "worker:0", "worker:1", "2 RUNNING", "of 2,000"):
        assert part in page.text
    assert "<img" not in page.text
    status = asking(job, "status")
    assert kind_of(status).startswith("application/json")
    assert load_json(status.content, JobStatus).name == NAME

    log = until(lambda: log if "step 5 " in (log := asking(job, "logs/worker-1")).text else None, job.describe)
    assert kind_of(log) == "text/plain;charset=utf-8"
    assert log.text.splitlines()[1:3] == ["first words", "step 1 <script>alert(2)</script>"]
    end = asking(job, "logs/worker-1?bytes=100")
    assert len(end.content) <= 100
    assert end.text.startswith("step ")
    assert asking(job, "logs/worker-7").status_code == 404
    assert asking(job, "logs/worker-0?bytes=0").status_code == 400

    go.touch()
    job.succeeded()


def texts(driver: Chrome, css: str) -> list[str]:
    """Of all elements that a selector finds; none while another page takes the place of this one."""
    try:
        return [element.text for element in driver.find_elements(By.CSS_SELECTOR, css)]
    except StaleElementReferenceException:
        return []


def step_of(driver: Chrome) -> str:
    """The first row's; empty when there is none."""
    return "".join(texts(driver, "tbody tr:first-child td:nth-child(4)"))


def watch(driver: Chrome, job: Job) -> None:
    """The table is there, and follows the job without a load of the page."""
    until(lambda: texts(driver, "td:first-child") == ["worker:0", "worker:1"], job.describe)
    driver.execute_script("window.sameDocument = true")
    first = until(lambda: step_of(driver), job.describe)
    until(lambda: step_of(driver) != first, job.describe)
    assert driver.execute_script("return window.sameDocument")
    assert texts(driver, "h1") == [NAME]
    assert driver.title.endswith(f"RUNNING {NAME}")
    assert texts(driver, "td .badge") == ["RUNNING", "RUNNING"]
    assert "<img src=x onerror=alert(1)>" in texts(driver, "#metrics dt")


def watch_log(driver: Chrome, job: Job) -> None:
    """It is there, it grows, and its end stays in sight."""
    log = until(lambda: "".join(texts(driver, "pre")), job.describe)
    assert log.splitlines()[1:3] == ["first words", "step 1 <script>alert(2)</script>"]
    until(lambda: len("".join(texts(driver, "pre"))) > len(log) + 500, job.describe)
    below = "const log = document.querySelector('pre'); return log.scrollHeight - log.clientHeight - log.scrollTop"
    assert driver.execute_script("return document.querySelector('pre').scrollTop") > 0
    assert abs(driver.execute_script(below)) < 4
    driver.save_screenshot(str(PICTURES / "page-log.png"))


def test_a_browser_follows_a_job_through_yarns_proxy(yarn: YarnPlace, go: Path) -> None:
    job = training(yarn, go)
    url = url_of(job)
    with browser() as driver:
        driver.get(url)
        watch(driver, job)
        for scheme in ("dark", "light"):
            prefer(driver, scheme)
            photograph(driver, f"page-{scheme}")
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")

        driver.get(url.rstrip("/"))  # as people type it
        watch(driver, job)
        assert driver.current_url == url
        driver.find_element(By.LINK_TEXT, "log").click()
        watch_log(driver, job)
        assert driver.current_url == f"{url}logs/worker-0"
        driver.find_element(By.LINK_TEXT, "Job page").click()
        watch(driver, job)
        driver.find_element(By.LINK_TEXT, "Status as JSON").click()
        until(lambda: '"application_id"' in "".join(texts(driver, "body")), job.describe)
        driver.back()
        watch(driver, job)
        assert complaints(driver) == []
        status, said = driver.execute_async_script(ORDER)  # as a script of any other page of this origin could
        assert (status, "orders from a browser are rejected" in said) == (403, True), said

        go.touch()
        job.succeeded()
        until(lambda: "No answer" in "".join(texts(driver, "#note")) or "SUCCEEDED" in driver.title, job.describe)
        photograph(driver, "page-ended")


@pytest.mark.long
def test_a_browser_without_scripts_sees_it_too(yarn: YarnPlace, go: Path) -> None:
    job = training(yarn, go)
    with browser() as driver:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        driver.get(url_of(job))
        first = until(lambda: step_of(driver), job.describe)
        until(lambda: step_of(driver) not in ("", first), job.describe)


@pytest.mark.long
def test_a_browser_opens_a_local_job_with_its_password(local: LocalPlace, go: Path) -> None:
    job = training(local, go)
    url = url_of(job)
    with browser(width=500) as driver:
        driver.get(url.replace("http://", f"http://anybody:{secret_of(local, job)}@"))
        watch(driver, job)
        photograph(driver, "page-narrow")
        assert complaints(driver) == []
    refused = requests.get(url, auth=("anybody", "guess"), headers={"Accept": "text/html"}, timeout=20)
    assert refused.status_code == 401
    assert "tracking-secret" in refused.text


def test_who_may_not_look_sees_nothing_of_it(secure: YarnPlace, go: Path) -> None:
    """Access lists are heeded there, and none lets bob in."""
    job = training(secure, go)
    alice, bob = secure.cluster.client("alice"), secure.cluster.client("bob")
    for path, words in (("", "worker:1"), ("sections", "worker:1"), ("status", NAME), ("logs/worker-0", "first words")):
        url = f"{url_of(job)}{path}"
        assert words in until(partial(alice.request, "GET", url), job.describe).decode()
        with pytest.raises(HttpError, match="bob may not view this application of alice"):
            bob.request("GET", url, query={"proxyapproved": "true"})
    go.touch()
    job.succeeded()

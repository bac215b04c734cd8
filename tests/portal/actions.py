"""Users act on a job in the browser: each action by a user who may edit its DAG, and by a user who may not."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from selenium.webdriver.common.by import By

from tests.browser import browser, prefer
from tests.e2e.rest import Rest
from tests.jobs.job import Job
from tests.portal.seen import JOBS, Pages
from tests.portal.site import READER, VIEWER, Site
from tests.portal.walk import PHONE, Walk, log_in
from tests.waiting import until
from tony_provider.cluster.training.identity import Identity

# Actions that the page offers, by the state of the job.
OFFERED = {
    "RUNNING": ["Save a checkpoint", "Export the model", "Suspend", "Resize", "Stop"],
    "SUSPENDED": ["Resume", "Resize", "Stop"],
}
NAMES = ["checkpoint", "export", "suspend", "resume", "resize", "stop"]


def every_action(walk: Walk, site: Site) -> None:
    """Raises AssertionError where a page, the API, the job or the audit log shows something else."""
    run = site.trigger("portal_acted")
    application_id = until(lambda: _application_of(site, run.run_id), "the job to act on")
    identity = site.hook.identity(dag_id="portal_acted", run_id=run.run_id, task_id="train")
    job = Job(site.hook, identity, application_id, site.place.log_folders)
    until(lambda: _runs(site, identity, application_id), job.describe)
    page = ActionPage(walk.pages, application_id)

    page.shows("RUNNING")
    not_permitted(site, application_id)
    photograph(walk, page.path, "job-actions")
    page.open("Save a checkpoint").confirm("Save a checkpoint", "Requested a checkpoint of")
    page.open("Export the model").confirm("Export the model", "Requested an export of the model")
    page.open("Resize")
    page.fill("2")
    assert page.command() == f"airflow tony resize {application_id} worker=2"
    page.confirm("Resize", "requests 1 container")
    until(lambda: len(job.status().tasks) == 2 and not job.status().resizing, job.describe)

    page.open("Suspend")
    page.press("Cancel")
    page.open("Suspend").confirm("Suspend", "saves a checkpoint, and releases its containers within")
    page.shows("SUSPENDED")
    until(lambda: "SUSPENDED" in walk.pages.texts("header")[0], lambda: walk.pages.texts("header")[0])
    not_permitted(site, application_id)
    photograph(walk, page.path, "job-suspended")
    walk.pages.open(f"{JOBS}?verdict=SUSPENDED")
    until(lambda: walk.said() == {application_id: "SUSPENDED"}, lambda: f"the suspended job; {walk.said()}")

    page.shows("SUSPENDED")
    page.open("Resume")
    assert "The newest checkpoint is from step" in walk.pages.section("Actions")
    page.confirm("Resume", "requests its containers")
    page.shows("RUNNING")
    page.open("Stop")
    assert "has no retries left" in walk.pages.section("Actions")
    page.fill("1")
    assert page.command() == f"airflow tony kill {application_id} --grace 1s"
    page.confirm("Stop", "ends within")
    assert run.end(120) == "failed", run.describe()
    until(lambda: "KILLED" in walk.pages.texts("header")[0], lambda: walk.pages.texts("header")[0])
    assert f"Killed by the Airflow user {READER}" in walk.pages.texts("header")[0]
    until(lambda: not walk.pages.texts(".actions"), "no more actions")
    recorded = [(each["event"], each["owner"]) for each in audit_log(site.rest, run.run_id)]
    sent = ["checkpoint", "export", "resize", "suspend", "resume", "stop"]
    assert recorded == [(f"tony_{name}", READER) for name in sent], recorded
    print("only the user who may edit the DAG could send each action", flush=True)


class ActionPage:
    """The section Actions of a job's page."""

    def __init__(self, pages: Pages, application_id: str) -> None:
        self.pages = pages
        self.path = f"{JOBS}?job={application_id}"

    def shows(self, state: str) -> None:
        """Open the page, and wait until it offers exactly the actions of this state, each with its command."""
        self.pages.open(self.path)
        offered = [f"{each} …" for each in OFFERED[state]]
        titles = partial(self.pages.texts, ".actions > li > button")
        until(lambda: titles() == offered, lambda: f"{offered}; there are {titles()}")
        commands = self.pages.texts(".actions > li > .command pre")
        assert len(commands) == len(offered), commands
        assert all(each.startswith("airflow tony ") for each in commands), commands

    def open(self, title: str) -> ActionPage:
        self.pages.press(f"{title} …")
        self.pages.see(".confirmation")
        return self

    def fill(self, text: str) -> None:
        field = self.pages.see(".confirmation input")
        field.clear()
        field.send_keys(text)

    def command(self) -> str:
        return self.pages.texts(".confirmation .command pre")[0]

    def press(self, text: str) -> None:
        self.pages.see(".confirmation").find_element(By.XPATH, f".//button[normalize-space(.)='{text}']").click()

    def confirm(self, text: str, result: str) -> None:
        self.press(text)
        self.pages.see_in("Actions", result)


def not_permitted(site: Site, application_id: str) -> None:
    """A user who may only read the DAG sees the reason in place of buttons, and the API refuses each order."""
    with browser(1400, 1000) as driver:
        log_in(driver, site.airflow.url, VIEWER)
        pages = Pages(driver, site.airflow.url)
        pages.open(f"{JOBS}?job={application_id}")
        reason = "Airflow does not permit you to edit the DAG portal_acted"
        pages.see_in("Actions", reason)
        assert not pages.all(".actions")
    rest = site.rest_of(VIEWER)
    token = site.rest.ask(f"/tony/api/jobs/{application_id}/actions")[1]["token"]
    for name in NAMES:
        status, answer = rest.ask(f"/tony/api/jobs/{application_id}/actions/{name}", "POST", {"token": token})
        assert (status, reason in json.dumps(answer)) == (403, True), (name, status, answer)


def refused(walk: Walk, site: Site) -> None:
    """The tab of a task whose job was refused shows the reason, and no action."""
    run = site.trigger("portal_refused")
    assert run.end(120) == "failed", run.describe()
    path = f"/dags/portal_refused/runs/{run.run_id.replace('+', '%2B')}/tasks/train/plugin/training"
    walk.pages.open(path)
    walk.pages.see_text("tasks.worker.memory")
    assert not walk.pages.all(".actions")
    photograph(walk, path, "job-refused")


def photograph(walk: Walk, path: str, name: str) -> None:
    for theme in ("light", "dark"):
        prefer(walk.driver, theme)
        walk.keep(path, f"{name}-{theme}")
    prefer(walk.driver, "light")
    walk.keep(path, f"{name}-phone", PHONE)


def audit_log(rest: Rest, run_id: str) -> list[dict[str, Any]]:
    found = rest.call("GET", "/eventLogs", dag_id="portal_acted", run_id=run_id, limit=100, order_by="id")
    return [each for each in found["event_logs"] if each["event"].startswith("tony_")]


def _runs(site: Site, identity: Identity, application_id: str) -> bool:
    status = site.hook.job_status(identity, application_id)
    return status is not None and status.state.value == "RUNNING" and bool(status.step)


def _application_of(site: Site, run_id: str) -> str | None:
    found = site.rest.ask("/tony/api/jobs?dag_id=portal_acted")[1]["jobs"]
    return next((each["application_id"] for each in found if each["run_id"] == run_id), None)

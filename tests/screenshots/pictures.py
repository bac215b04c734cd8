"""The pictures, one function each; a picture's name is its file's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.demo.airflow import DAG as DIGITS
from tests.e2e.runs import Backfill, Run
from tests.jobs.processes import processes_of
from tests.portal.seen import JOBS
from tests.screenshots.camera import HEIGHT, Camera
from tests.screenshots.stage import CLICKS, TUTORIAL, Stage
from tests.waiting import until
from tony_provider.get_provider_info import get_provider_info

LONG = 2000  # higher than any dialog
PORTAL_HEIGHT = 1300  # of a job's page: its figures and curves
DIALOG = "//*[@role='dialog'][.//footer]"
# Three workers, since two do not look like several; and more epochs than there is time for.
CONF = {"workers": 3, "epochs": 1000}
BACKFILLED = 12  # days
PORTAL = ".tony-portal"
# Enough to see a training go on: of the digits', which have 1,000, and in the log of the tutorial's.
FIRST_STEP = 25
STEPS_AFTER = 25  # that the killed job is watched, beyond the step at which it was killed
RESTART_HEIGHT = 760
PROGRESS_LINES = 5
TRAIN_SECONDS = 300.0  # on a machine that is busy


def take_all(stage: Stage, camera: Camera) -> None:
    """The trainings go on while the forms are looked at."""
    today = datetime.now(UTC).date()
    dates = [str(today - timedelta(days)) for days in range(BACKFILLED, 0, -1)]
    days = stage.backfill(CLICKS, dates)
    tutorial, digits = stage.trigger(TUTORIAL), stage.trigger(DIGITS, **CONF)
    for path in (
        *connection_form(camera),
        trigger_form(camera),
        task_log(camera, tutorial),  # while it is short, since the page shows its end
        job_page(stage, camera, digits),
        restart(stage, camera, digits),
        *portal(camera, days, tutorial),
    ):
        print(f"{path} ({path.stat().st_size:,} bytes)", flush=True)


def connection_form(camera: Camera) -> list[Path]:
    """As it is when its type has just been chosen; and what is below its second title."""
    camera.open("/connections")
    camera.press("Add Connection")
    [kind] = get_provider_info()["connection-types"]
    camera.see(By.NAME, "connection_id").send_keys("tony_default")
    types = camera.see(By.XPATH, f"{DIALOG}//input[@role='combobox']")
    types.send_keys(kind["hook-name"], Keys.ENTER)
    camera.see(By.NAME, "host")
    first = _dialog(camera, "connection-form")
    _unfold(camera, "Extra Fields", "element_queue")
    return [first, _dialog(camera, "connection-form-extra")]


def trigger_form(camera: Camera) -> Path:
    camera.open(f"/dags/{DIGITS}")
    camera.press("Trigger")
    _unfold(camera, "Training", "element_warm_start")
    return _dialog(camera, "trigger-form")


def job_page(stage: Stage, camera: Camera, run: Run) -> Path:
    application = stage.application(run)
    camera.go(stage.page(application))

    def is_under_way() -> bool:
        status = stage.hook.job(application.id).master_status()
        return (status.step or 0) >= FIRST_STEP and status.checkpoint is not None

    until(is_under_way, run.describe, TRAIN_SECONDS)
    camera.driver.refresh()
    camera.see(By.CSS_SELECTOR, "#metrics dl")
    return camera.take("job-page", camera.see(By.TAG_NAME, "body"))


def restart(stage: Stage, camera: Camera, run: Run) -> Path:
    """The page while one of the three workers is killed: the restart, and the step from which the job resumes."""
    application = stage.application(run)
    job = stage.hook.job(application.id)
    before = job.master_status()
    assert before.step is not None
    camera.go(stage.page(application))
    camera.see(By.CSS_SELECTOR, "#tasks table")
    mark = b"\0TONY_TASK_INDEX=1\0"
    everyone = processes_of(application.id)
    executors = {each.pid for each in everyone if mark not in each.environment}
    (killed,) = [each.pid for each in everyone if mark in each.environment and each.parent in executors]
    os.kill(killed, signal.SIGKILL)

    def has_resumed() -> bool:
        status = job.master_status()
        return status.generation > before.generation and (status.step or 0) > (before.step or 0) + STEPS_AFTER

    path = camera.record("restart", RESTART_HEIGHT, has_resumed, TRAIN_SECONDS)
    camera.size(HEIGHT)
    return path


def task_log(camera: Camera, run: Run) -> Path:
    task = run.task()
    until(lambda: task.log().count(" of 360 (") >= PROGRESS_LINES, task.log, TRAIN_SECONDS)
    camera.size(780)  # before the page is there: of a long log Airflow draws what is in sight
    camera.open(f"/dags/{run.dag_id}/runs/{run.run_id}/tasks/train")
    camera.see_text("Job is RUNNING")
    progress = "//*[contains(text(), ' of 360 (')]"
    until(lambda: len(camera.driver.find_elements(By.XPATH, progress)) >= PROGRESS_LINES, "the lines in the log's page")
    camera.leave()
    return camera.take("task-log")


def portal(camera: Camera, days: Backfill, trained: Run) -> Iterator[Path]:
    """What has become of every day's training: a list, and all dates; and one job that trained for some minutes."""
    days.end(TRAIN_SECONDS)
    camera.size(HEIGHT)
    camera.open(f"{JOBS}?dag_id={CLICKS}")
    camera.see(By.CSS_SELECTOR, f"{PORTAL} table.jobs")
    yield camera.take("portal-jobs")
    camera.open(f"/dags/{CLICKS}/plugin/trainings?metric=log_loss")
    camera.see(By.CSS_SELECTOR, f"{PORTAL} section canvas")
    yield camera.take("portal-dates")
    trained.end(TRAIN_SECONDS)
    camera.open(f"{JOBS}?dag_id={trained.dag_id}")
    job = camera.see(By.CSS_SELECTOR, f"{PORTAL} table.jobs a[href*='job=']").get_attribute("href")
    assert job
    camera.size(PORTAL_HEIGHT)
    camera.go(job)
    camera.see(By.CSS_SELECTOR, f"{PORTAL} section canvas")
    camera.see_text("Timeline")
    yield camera.take("portal-job")


def _unfold(camera: Camera, title: str, field: str) -> None:
    camera.press(title, within=DIALOG)
    camera.see(By.NAME, field)


def _dialog(camera: Camera, name: str) -> Path:
    """All of it, however long it is."""
    camera.size(LONG)
    camera.leave()
    picture = camera.take(name, _settled(camera))
    camera.size(HEIGHT)
    return picture


def _settled(camera: Camera) -> WebElement:
    """The dialog, when it has come to rest: it glides, and unfolds."""
    seen: list[object] = []

    def is_at_rest() -> WebElement | None:
        dialog = camera.see(By.XPATH, DIALOG)
        seen.append(dialog.rect)
        return dialog if seen[-3:].count(seen[-1]) == 3 else None

    return until(is_at_rest, "the dialog to come to rest")

"""Who waits for a job, and so brings it newer tokens: a deferred task, a waiting worker, or a command by cron."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.cli.cli_parser import get_parser
from airflow.triggers.base import TriggerEvent

from tests import airflow_home
from tests.faults.airflow_task import RUN_ID, TASK
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import SECONDS, until
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.triggers.tony import DeferredJob, TonyJobTrigger, WatchEvent
from tony_provider.watching.job_watch import WatchEnd

_CRON_SECONDS = 3.0  # where tokens live for half a minute; an hour where they live for a week
_AIRFLOW_SECONDS = 300.0  # that a whole Airflow may take to begin a task, and to conclude it


@contextmanager
def deferred(job: Job, place: YarnPlace) -> Iterator[None]:
    """While a task that is deferred waits for the job, whose trigger must see its end."""
    watched = DeferredJob(place.hook().tony_conn_id, None, job.identity.slug, job.identity.digest, job.id, kill=False)
    trigger = TonyJobTrigger(job=to_plain(watched), poll_interval=0.5, end=None, queue=None, whose="a test")

    async def first() -> TriggerEvent:
        return await anext(trigger.run())

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asyncio.run, first())
        try:
            yield
        except BaseException:
            job.hook.kill(job.id, "its test has failed")  # otherwise the trigger waits for ever
            raise
        event = from_plain(waiting.result(SECONDS).payload, WatchEvent)
    assert (event.reason, event.error) == (WatchEnd.FINISHED, None)


@contextmanager
def by_trigger(place: YarnPlace, spec: dict[str, Any], folder: Path) -> Iterator[Job]:
    job = place.submit(spec)
    with deferred(job, place):
        yield job


@contextmanager
def by_worker(place: YarnPlace, spec: dict[str, Any], folder: Path) -> Iterator[Job]:
    """A task in a process of its own, which must succeed."""
    hook, dag_id = place.hook(), f"tokens_{uuid.uuid4().hex[:12]}"
    identity = hook.identity(dag_id=dag_id, run_id=RUN_ID, task_id=TASK)
    request, told, output = (folder / f"task.{suffix}" for suffix in ("request", "told", "log"))
    given = {"framework": "standalone", "am": {"memory": "256MiB"}, **spec}
    request.write_text(json.dumps({"dag_id": dag_id, "job": given, "arguments": {"deferrable": False}}))
    if not (airflow_home.HOME / "airflow.db").exists():
        airflow_home.migrate()
    environment = {
        **os.environ,
        airflow_home.SHARED: str(airflow_home.HOME),
        "AIRFLOW_CONN_TONY_DEFAULT": os.environ[f"AIRFLOW_CONN_{hook.tony_conn_id.upper()}"],
    }
    command = [sys.executable, "-m", "tests.faults.airflow_task", str(request), str(told)]
    with output.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:

        def begun() -> str | None:
            assert process.poll() is None, output.read_text()[-3000:]
            return next((each.id for each in hook.live() if identity.tag in each.tags), None)

        application_id = until(begun, lambda: f"the task's job\n{output.read_text()[-3000:]}", _AIRFLOW_SECONDS)
        yield Job(hook, identity, application_id, place.log_folders)
        process.wait(_AIRFLOW_SECONDS)
        assert json.loads(told.read_text())["state"] == "success", output.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


@contextmanager
def by_command(place: YarnPlace, spec: dict[str, Any], folder: Path) -> Iterator[Job]:
    """``airflow tony renew``, again and again; that it fails once is nothing while a server is away."""
    job = place.submit(spec, watched=False)
    args = get_parser().parse_args(["tony", "renew", "--conn-id", place.hook().tony_conn_id, job.id])
    over = threading.Event()

    def cron() -> None:
        while not over.wait(_CRON_SECONDS):
            try:
                args.func(args)
            except SystemExit as end:
                print(f"airflow tony renew: {end}")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cron)
        try:
            yield job
        finally:
            over.set()
        running.result(SECONDS)

"""Tries of one Airflow task, each in a process of its own that can be killed."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests import airflow_home
from tests.faults.airflow_task import RUN_ID, TASK
from tests.faults.field import EVERY, PACE, STEPS, Field
from tests.faults.training import Training
from tests.faults.weights import PROGRAMS
from tests.jobs.job import Job
from tests.waiting import until

RESULT_SECONDS = 600.0  # that a try may take to its end


@dataclass
class Try:
    process: subprocess.Popen[bytes]
    output: Path
    told: Path

    def kill(self) -> None:
        """As the kernel or an administrator ends a worker: SIGKILL, with no word to anybody."""
        self.process.kill()
        self.process.wait()

    def result(self) -> dict[str, Any]:
        """Wait for its end; ``state`` of the DAG run, ``result`` of the task, ``error``."""
        code = self.process.wait(RESULT_SECONDS)
        assert code == 0, f"the task's process ended with {code}:\n{self.said()[-3000:]}"
        told: dict[str, Any] = json.loads(self.told.read_text())
        return told

    def said(self) -> str:
        """Its log so far."""
        return self.output.read_text(errors="replace")


@dataclass
class Tries:
    """Of one task of a DAG of its own."""

    field: Field
    dag_id: str = dataclasses.field(default_factory=lambda: f"faults_{uuid4().hex[:12]}")
    begun: list[Try] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.diary = self.field.new_diary()
        self._hook = self.field.place.hook()
        self.identity = self._hook.identity(dag_id=self.dag_id, run_id=RUN_ID, task_id=TASK)

    def job(self, *, pace: float = PACE, memory: str = "", **changes: Any) -> dict[str, Any]:
        """The row's training. ``changes`` go over the specification."""
        self.diary.set_pace(pace)
        environment = {"FAULTS_STEPS": str(STEPS), "FAULTS_EVERY": str(EVERY)}
        return self.field.spec(self.diary, environment, self.field.workers(memory)) | changes

    def begin(self, job: dict[str, Any], **arguments: Any) -> Try:
        """Start the next try; ``arguments`` of the operator, JSON only."""
        stem = self.field.folder / f"{self.dag_id}-{len(self.begun) + 1}"
        self.begun.append(begin_try(stem, self.dag_id, job, self.field.place.connection, **arguments))
        self.field.at_end(self.begun[-1].kill)
        return self.begun[-1]

    def training(self) -> Training:
        """The newest application that a user process has run in."""
        newest = until(lambda: next(reversed(self.diary.entries("started")), None), self._describe, RESULT_SECONDS)
        return self.field.adopt(self._job(newest.application), self.diary)

    def applications(self) -> list[str]:
        """Those in which a user process has run, oldest first."""
        return list(dict.fromkeys(entry.application for entry in self.diary.entries("started")))

    def _job(self, application_id: str) -> Job:
        return Job(self._hook, self.identity, application_id, self.field.place.log_folders)

    def _describe(self) -> str:
        return f"a user process to start\n{self.begun[-1].said()[-3000:]}"


def begin_try(stem: Path, dag_id: str, job: dict[str, Any], connection: dict[str, Any], **arguments: Any) -> Try:
    """Start the next try of the one task of a DAG. ``stem``: of the names of its files. ``arguments``: JSON only."""
    request, told, output = (stem.with_suffix(suffix) for suffix in (".request", ".told", ".log"))
    request.write_text(json.dumps({"dag_id": dag_id, "job": job, "arguments": arguments}))
    environment = {
        **os.environ,
        airflow_home.SHARED: str(_home()),
        "AIRFLOW_CONN_TONY_DEFAULT": json.dumps(connection),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    }
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.airflow_task", str(request), str(told)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=PROGRAMS.parents[2],
        )
    return Try(process, output, told)


@functools.cache
def _home() -> Path:
    """An Airflow with an empty database, made once for all rows."""
    if not (airflow_home.HOME / "airflow.db").exists():
        airflow_home.migrate()
    return airflow_home.HOME

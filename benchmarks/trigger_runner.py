"""Airflow's TriggerRunner without a database: its supervisor is given triggers, and keeps what they yield."""

from __future__ import annotations

import time
from typing import Any

from airflow.executors.workloads.trigger import RunTrigger
from airflow.jobs.triggerer_job_runner import TriggerRunnerSupervisor
from airflow.models.trigger import Trigger
from airflow.triggers.base import TriggerEvent

from benchmarks.processor import cpu_seconds


class Runner(TriggerRunnerSupervisor):
    """The methods overridden are those that the base class names for supervisors that have no job of the database."""

    @classmethod
    def started(cls, capacity: int) -> Runner:
        """One that has no trigger yet."""
        runner: Runner = cls.start(job=None, capacity=capacity)
        runner.names = {}
        runner.seen = {}
        runner.problems = []
        return runner

    def add(self, application_id: str, trigger: tuple[str, dict[str, Any]]) -> None:
        """A trigger for this application: the path of its class, and its arguments."""
        classpath, arguments = trigger
        number = len(self.names) + 1
        self.names[number] = application_id
        encrypted = Trigger.encrypt_kwargs(arguments)
        self.creating_triggers.append(RunTrigger(id=number, classpath=classpath, encrypted_kwargs=encrypted))

    names: dict[int, str]  # of the application, by the trigger's number
    seen: dict[str, float]  # application -> when its event came, monotonic
    problems: list[str]  # of triggers that failed

    def load_triggers(self) -> None:
        """It was given them all."""

    def heartbeat(self) -> None:
        """Nobody is to know that it lives."""

    def clean_unused(self) -> None:
        """There is no database."""

    def on_trigger_event(self, trigger_id: int, event: TriggerEvent) -> None:
        self.seen[self.names[trigger_id]] = time.monotonic()

    def on_trigger_failure(self, trigger_id: int, exc: list[str] | None) -> None:
        self.problems.append("".join(exc or ["no reason given"]))

    def metric_tags(self) -> dict[str, str]:
        return {"hostname": "bench"}

    def run_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.run_once()

    @property
    def cpu_seconds(self) -> float:
        """Of the process that runs the triggers, all its threads."""
        return cpu_seconds(self.pid)

    def end(self) -> None:
        self.kill(escalation_delay=10, force=True)

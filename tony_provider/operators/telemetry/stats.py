"""Timers and counters of trainings, in Airflow's own metrics: statsd, or OpenTelemetry, as ``[metrics]`` says."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import Stats

from tony_provider.operators.telemetry.ended_try import EndedTry


def tell_stats(ended: EndedTry) -> None:
    """Tell Airflow's metrics how a try went. What is not known is not told. Without ``[metrics]`` it does nothing."""
    tags = {"dag_id": ended.run.dag_id, "task_id": ended.run.task_id, "queue": ended.queue}
    timers = {"waiting": ended.waiting_seconds, "training": ended.training_seconds, "total": ended.total_seconds}
    for name, seconds in timers.items():
        if seconds is not None:
            Stats.timing(f"tony.job.{name}", timedelta(seconds=seconds), tags=tags)
    kind = {"kind": ended.kind} if ended.kind else {}
    Stats.incr(f"tony.job.{ended.verdict.value.lower()}", tags={**tags, **kind})
    if ended.status is not None and ended.status.restarts:
        Stats.incr("tony.job.restarts", count=ended.status.restarts, tags=tags)

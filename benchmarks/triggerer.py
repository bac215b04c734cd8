"""`make bench-triggerer`: 1,000 deferred trainings in one TriggerRunner of Airflow's, beside one naive poll per job.

The TriggerRunner is Airflow's own, in its own process, with its own way of handing over events; the cluster is a
stand-in, which answers at once and counts. Both kinds of trigger look at steps and metrics (details on), ours at what
the leader prints too. Told are requests per minute while nothing ends, the TriggerRunner's share of a processor
meanwhile, and the seconds from the end of an application until Airflow has the event.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from benchmarks import whole_airflow
from benchmarks.standin_cluster import application_id, standin

TRIGGERS = 1000
WARM_UP = 30.0  # seconds
STEADY = 60.0  # seconds
ENDS = 40  # applications that end, one after the other
PAUSE = 0.5  # seconds between two of them
TIMEOUT = 300.0  # seconds until the last event is there


@attrs.frozen
class Figures:
    requests: Mapping[str, float]  # a minute, by kind
    cpu: float  # percent of one processor
    latencies: list[float]  # seconds

    def row(self, name: str) -> str:
        total = sum(self.requests.values())
        kinds = ", ".join(f"{count:.0f} {kind}" for kind, count in sorted(self.requests.items()))
        return f"{name:<8} {total:>12.0f} {self.cpu:>6.0f} % {spread(self.latencies):>24}  ({kinds})"


def spread(latencies: list[float]) -> str:
    """Median, 95th percentile, and how many there were."""
    if not latencies:
        return "no event came"
    ordered = sorted(latencies)
    last = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{statistics.median(ordered):.1f} s {last:>6.1f} s {len(ordered):>5}"


def ours(name: str) -> tuple[str, dict[str, Any]]:
    from benchmarks.job_trigger import trigger_of

    return trigger_of(name).serialize()


def naive(name: str) -> tuple[str, dict[str, Any]]:
    from benchmarks.naive_trigger import NaiveTrigger

    return NaiveTrigger(application_id=name, poll_interval=5.0).serialize()


def measure(make: Callable[[str], tuple[str, dict[str, Any]]]) -> Figures:
    from benchmarks.trigger_runner import Runner

    with standin(TRIGGERS) as cluster:
        os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(cluster.connection)
        runner = Runner.started([make(application_id(number)) for number in range(TRIGGERS)])
        try:
            runner.run_for(WARM_UP)
            before, cpu = cluster.ask("/counts"), runner.cpu_seconds
            began = time.monotonic()
            runner.run_for(STEADY)
            minutes = (time.monotonic() - began) / 60
            after, used = cluster.ask("/counts"), runner.cpu_seconds - cpu
            ended: dict[str, float] = {}
            for number in range(ENDS):
                name = application_id(number * TRIGGERS // ENDS)
                ended[name] = time.monotonic()
                cluster.ask(f"/finish/{name}")
                runner.run_for(PAUSE)
            deadline = time.monotonic() + TIMEOUT
            while len(runner.seen) < ENDS and time.monotonic() < deadline:
                runner.run_for(PAUSE)
            if runner.problems:
                print(f"{len(runner.problems)} triggers failed: {runner.problems[0]}", file=sys.stderr)
        finally:
            runner.end()
    return Figures(
        {kind: (count - before.get(kind, 0)) / minutes for kind, count in after.items()},
        100 * used / (60 * minutes),
        [at - ended[name] for name, at in runner.seen.items()],
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        os.environ |= {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(Path(home) / "logs")}
        figures = {"poller": measure(ours), "naive": measure(naive)}
        with standin(whole_airflow.TASKS) as cluster:
            whole = whole_airflow.latencies(Path(home) / "whole", cluster)
    print(f"{TRIGGERS} deferred trainings in one TriggerRunner, a stand-in for the cluster, details on")
    print("         requests/min    CPU     median    95 %  ends")
    for name, found in figures.items():
        print(found.row(name))
    ratio = sum(figures["naive"].requests.values()) / sum(figures["poller"].requests.values())
    print(f"the naive poll asks {ratio:.0f} times as often")
    print(f"{whole_airflow.TASKS} of them through a whole Airflow, until the task goes on: {spread(whole)}")


if __name__ == "__main__":
    main()

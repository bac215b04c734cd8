"""`python -m benchmarks.airflow_triggerer`: memory and processor of a triggerer, per 1,000 deferred jobs.

Airflow's own TriggerRunner, in its own process; the cluster is a stand-in, which answers at once. Its memory is that
with the triggers, a while after they have begun, less that of the same process before it had any. Beside ours: a naive
poll for each job, and Airflow's own trigger that only waits for a time, which is what any deferred task costs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from benchmarks import program
from benchmarks.airflow_side.turns import in_turns
from benchmarks.launchers.memory import Memory
from benchmarks.report import OURS, Figure, Ratio, Report, Size, by_name
from benchmarks.standin_cluster import application_id, standin

ROUNDS = 3
TRIGGERS = (1000,)
_BEFORE = 4.0  # seconds for the process to begin
_WARM_UP = 12.0
_STEADY = 10.0
_NAIVE, _WAITS = "naive", "only waits"
Trigger = tuple[str, dict[str, Any]]  # its class, and its arguments


@attrs.frozen
class Held:
    """By a triggerer, of all its triggers together."""

    resident: float  # MiB
    proportional: float
    processor: float  # of one, percent


def measure(triggers: Sequence[int] = TRIGGERS, rounds: int = ROUNDS) -> Report:
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        os.environ |= {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(Path(home) / "logs")}
        os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
        found = [figure for number in triggers for figure in _measured(number, rounds)]
    title = f"Deferred jobs in one TriggerRunner, a stand-in for the cluster, details on; {rounds} rounds"
    return Report("airflow_triggerer", title, found, ratios(found))


def _measured(number: int, rounds: int) -> Iterator[Figure]:
    makers: Mapping[str, Callable[[str], Trigger]] = {OURS: _ours, _NAIVE: _naive, _WAITS: _waits}
    size = Size(number, "jobs")
    held = in_turns({who: partial(_held, who, make, number) for who, make in makers.items()}, rounds)
    for who, each in held.items():
        yield Figure("resident", who, "MiB", [one.resident for one in each], size)
        yield Figure("proportional", who, "MiB", [one.proportional for one in each], size)
        yield Figure("processor", who, "%", [one.processor for one in each], size)


def _ours(name: str) -> Trigger:
    from benchmarks.job_trigger import trigger_of

    return trigger_of(name).serialize()


def _naive(name: str) -> Trigger:
    from benchmarks.naive_trigger import NaiveTrigger

    return NaiveTrigger(application_id=name, poll_interval=5.0).serialize()


def _waits(name: str) -> Trigger:
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    return DateTimeTrigger(moment=datetime.now(UTC) + timedelta(days=1)).serialize()


def _held(who: str, make: Callable[[str], Trigger], number: int) -> Held:
    from benchmarks.trigger_runner import Runner

    program.progress(f"{number} jobs: {who}")
    with standin(number) as cluster:
        os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(cluster.connection)
        runner = Runner.started(number)
        try:
            runner.run_for(_BEFORE)
            before = Memory.of([runner.pid])
            for each in range(number):
                runner.add(application_id(each), make(application_id(each)))
            runner.run_for(_WARM_UP)
            processor = runner.cpu_seconds
            runner.run_for(_STEADY)
            after, used = Memory.of([runner.pid]), runner.cpu_seconds - processor
            assert not runner.problems, runner.problems[0]
        finally:
            runner.end()
    resident, proportional = after.resident - before.resident, after.proportional - before.proportional
    return Held(resident, proportional, 100 * used / _STEADY)


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    """To the naive poll, and to what any deferred task costs."""
    by = by_name(found)
    return [
        Ratio.between(figure, by[figure.name, other])
        for figure in found
        if figure.who == OURS
        for other in (_NAIVE, _WAITS)
        if min(by[figure.name, other].values) > 0
    ]


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--triggers", type=program.sizes, default=TRIGGERS, help="such as 100,1000")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.triggers, arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())

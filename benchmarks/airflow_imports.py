"""`python -m benchmarks.airflow_imports`: what the provider adds to Airflow's own processes by being installed.

Each figure is of a fresh interpreter that has loaded what Airflow loads anyway: seconds, those of a processor, and
memory that the parse of a DAG file takes (with one task and with a hundred, beside files with operators of other
providers and beside one without any), that a task takes when it begins, and each of Airflow's processes when it finds
its providers and plugins.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks import program
from benchmarks.airflow_side.environment import WITHOUT, environment
from benchmarks.airflow_side.process_cost import Cost, figures
from benchmarks.airflow_side.turns import in_turns
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, Size, by_name

ROUNDS = 2
TASKS = (1, 100)
_SDK = "import airflow.providers.common.compat.sdk; from airflow.sdk import DAG, BaseOperator"
_DAG = """
from airflow.sdk import DAG
{imported}
with DAG("bench"):
    for number in range({tasks}):
        {made}
"""
_OURS = """TonyTrainOperator(task_id=f"train_{number}", job=dict(
            framework="standalone", tasks=dict(worker=dict(command="true", instances=2, memory="1GiB"))))"""
_BASH, _SENSOR, _NONE = "BashOperator", "WebHdfsSensor", "no operator"
_OPERATORS = {
    OURS: ("from tony_provider.operators.tony import TonyTrainOperator", _OURS),
    _BASH: (
        "from airflow.providers.standard.operators.bash import BashOperator",
        'BashOperator(task_id=f"train_{number}", bash_command="true")',
    ),
    _SENSOR: (
        "from airflow.providers.apache.hdfs.sensors.web_hdfs import WebHdfsSensor",
        'WebHdfsSensor(task_id=f"train_{number}", filepath="/bench")',
    ),
    _NONE: ("", "pass"),
}
_PROVIDER = "from {}.get_provider_info import get_provider_info; get_provider_info()"
_HDFS = "Airflow's provider for HDFS"
_SERVER = "from airflow.api_fastapi.app import create_app; create_app(apps='core')"


@attrs.frozen
class Case:
    what: str
    before: str  # what Airflow has loaded by then
    programs: Mapping[str, str]  # by whom they are of
    size: Size | None = None


def _parse(tasks: int) -> Case:
    programs = {
        who: _DAG.format(imported=imported, made=made, tasks=tasks) for who, (imported, made) in _OPERATORS.items()
    }
    return Case("parse of a DAG file", _SDK, programs, Size(tasks, "tasks"))


# What it imports before it looks for its job; the last two are what the hook opens.
_TRAINING = ", ".join(
    f"tony_provider.{module}"
    for module in ("operators.training_try", "cluster.yarn.yarn_cluster", "cluster.submission.submitter")
)
_CASES = (
    Case(
        "a task begins",
        f"{_SDK}; import airflow.sdk.execution_time.task_runner, tony_provider.operators.tony",
        {OURS: f"import {_TRAINING}"},
    ),
    Case(
        "the provider is found",
        "import airflow.providers_manager",
        {OURS: _PROVIDER.format("tony_provider"), _HDFS: _PROVIDER.format("airflow.providers.apache.hdfs")},
    ),
    Case(
        "the plugin is loaded",
        "import airflow.plugins_manager, airflow.providers.common.compat.sdk",
        {OURS: "from tony_provider.portal.plugin import TonyPlugin"},
    ),
    Case("the API server's app is made", "import airflow.api_fastapi.app", {OURS: _SERVER, WITHOUT: _SERVER}),
)


def measure(tasks: Sequence[int] = TASKS, rounds: int = ROUNDS) -> Report:
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name:
        home = Path(name)
        found = [figure for case in (*map(_parse, tasks), *_CASES) for figure in _measured(case, home, rounds)]
    title = f"What being installed costs Airflow's processes, each in a fresh interpreter, {rounds} times"
    return Report("airflow_imports", title, found, ratios(found))


def _measured(case: Case, home: Path, rounds: int) -> Iterator[Figure]:
    program.progress(case.what)
    measures = {
        who: partial(
            cost, case.before, text, environment(home, hidden=who == WITHOUT, _AIRFLOW_PROCESS_CONTEXT="server")
        )
        for who, text in case.programs.items()
    }
    for one in measures.values():  # bytecode, files
        one()
    for who, costs in in_turns(measures, rounds).items():
        yield from (attrs.evolve(figure, size=case.size) for figure in figures(case.what, who, costs))


def cost(before: str, text: str, env: dict[str, str]) -> Cost:
    """Of a program in a fresh interpreter."""
    command = [sys.executable, "-m", "benchmarks.airflow_side.statement_cost", before, text]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{text}\n{done.stdout}{done.stderr}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    """A hundred tasks beside Airflow's own, since what a file takes is its tasks; the whole server with and without."""
    by = by_name(found)
    many = f"parse of a DAG file: processor, {Size(TASKS[-1], 'tasks')}"
    server = "the API server's app is made: processor"
    pairs = ((many, _BASH), (many, _SENSOR), (server, WITHOUT))
    compared = [
        Ratio.between(by[what, OURS], by[what, other])
        for what, other in pairs
        if (what, OURS) in by and (what, other) in by
    ]
    alone = (f"{what}: processor" for what in ("the provider is found", "the plugin is loaded"))
    return [*compared, *(Ratio.alone(by[what, OURS], Aim(0.05)) for what in alone if (what, OURS) in by)]


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--tasks", type=program.sizes, default=TASKS, help="of the DAG files, such as 1,100")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.tasks, arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())

"""What the benchmarks of Airflow's side compare, of figures that are given; and turns."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarks import airflow_commands, airflow_imports, airflow_portal, airflow_submissions
from benchmarks.airflow_side.environment import WITHOUT, environment
from benchmarks.airflow_side.process_cost import Cost, figures, run
from benchmarks.airflow_side.turns import in_turns
from benchmarks.report import OURS, Figure, Size

PROVIDERS = """
from airflow._shared.module_loading import entry_points_with_dist
print(*(dist.name for _, dist in entry_points_with_dist("apache_airflow_provider")))
"""


def test_each_begins_a_round_in_its_turn() -> None:
    asked: list[str] = []

    def ask(name: str) -> int:
        asked.append(name)
        return len(asked)

    found = in_turns({name: partial(ask, name) for name in "abc"}, 3)
    assert "".join(asked) == "abcbcacab"
    assert found == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_a_process_costs_what_it_takes_and_one_that_fails_says_what_it_said(tmp_path: Path) -> None:
    env = environment(tmp_path)
    held = bytearray(b"1") * (200 << 20)  # by who asks
    cost = run([sys.executable, "-c", "pass"], env)
    assert cost.memory < 100
    assert len(held) > 0
    cost = run([sys.executable, "-c", "held = bytearray(b'1') * (200 << 20)"], env)
    assert cost.memory > 200
    assert cost.processor > 0
    assert cost.seconds > 0
    with pytest.raises(RuntimeError, match="this and that"):
        run([sys.executable, "-c", "raise SystemExit('this and that')"], env)


@pytest.mark.parametrize("hidden", [False, True])
def test_without_the_provider_airflow_finds_the_others_only(tmp_path: Path, hidden: bool) -> None:
    command = [sys.executable, "-c", PROVIDERS]
    env = environment(tmp_path, hidden=hidden)
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    assert ("tony-provider" in found) is not hidden
    assert "apache-airflow-providers-standard" in found


def test_commands_are_compared_with_the_same_without_the_provider_or_with_the_least_that_airflow_does() -> None:
    found = [
        *figures("airflow version", OURS, [Cost(2.0, 1.1, 100.0)]),
        *figures("airflow version", WITHOUT, [Cost(2.0, 1.0, 100.0)]),
        *figures("airflow tony list", OURS, [Cost(4.0, 2.0, 120.0)]),
    ]
    ratios = {ratio.name: ratio.values for ratio in airflow_commands.ratios(found)}
    assert ratios == {
        "airflow version: processor: ratio to airflow version without the provider": [1.1],
        "airflow tony list: processor: ratio to airflow version without the provider": [2.0],
    }


def test_imports_are_compared_at_a_hundred_tasks() -> None:
    hundred = Size(100, "tasks")
    parse, server = "parse of a DAG file: processor", "the API server's app is made: processor"
    found = [
        Figure(parse, OURS, "s", [0.6, 0.4], hundred),
        Figure(parse, "BashOperator", "s", [0.3, 0.2], hundred),
        Figure(server, OURS, "s", [3.3]),
        Figure(server, WITHOUT, "s", [3.0]),
        Figure("the plugin is loaded: processor", OURS, "s", [0.06]),
    ]
    ratios = {ratio.name: (ratio.median, ratio.holds) for ratio in airflow_imports.ratios(found)}
    assert ratios == {
        f"{parse}, 100 tasks: ratio to BashOperator": (2.0, None),
        f"{server}: ratio to without the provider": (pytest.approx(1.1), None),
        "the plugin is loaded: processor": (0.06, False),
    }


def test_many_submissions_are_compared_with_as_many_one_after_the_other() -> None:
    what = "until all are submitted"
    found = [
        Figure(what, OURS, "s", [1.0, 2.0], Size(1, "tasks")),
        Figure(what, OURS, "s", [50.0, 100.0], Size(100, "tasks")),
        Figure("another", OURS, "s", [1.0, 1.0], Size(100, "tasks")),
    ]
    (ratio,) = airflow_submissions.ratios(found)
    assert ratio.values == [0.5, 0.5]
    assert airflow_submissions.ratios(found[1:]) == []


def test_the_list_of_jobs_is_compared_with_airflows_own_and_percentiles_are_those_of_each_round() -> None:
    ours = airflow_portal.Answers("/jobs", OURS, [1.0], [[0.2] * 19 + [2.0]])
    theirs = airflow_portal.Answers("task instances", "Airflow", [0.5], [[0.1] * 20])
    found = [figure for each in (ours, theirs) for figure in airflow_portal.figures(each)]
    values = {ratio.what: ratio.values for ratio in airflow_portal.ratios(found)}
    assert values["/jobs: first, 10,000 jobs"] == [2.0]
    assert values["/jobs: median, 10,000 jobs"] == [2.0]
    (worst,) = values["/jobs: 95th percentile, 10,000 jobs"]
    assert 2.0 < worst < 20.0

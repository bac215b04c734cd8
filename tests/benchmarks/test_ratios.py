"""Which ratios each benchmark tells, and what it aims at: of figures as it would measure them."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import grants, launch, overhead, recovery, scale, triggerer
from benchmarks.launchers.memory import Memory
from benchmarks.report import OURS, Figure, Ratio, Size


def said(found: list[Ratio]) -> dict[str, tuple[float, str]]:
    """The median, and the aim, by name."""
    return {ratio.name: (ratio.median, "" if ratio.aim is None else str(ratio.aim)) for ratio in found}


def test_launch() -> None:
    figures = [
        Figure(what, who, "s", [value, value], Size(tasks, "tasks"))
        for tasks in (1, 2, 32)
        for who, value in ((OURS, 2.0), ("floor", 1.0), ("skein", 4.0))
        for what in launch.WHATS.values()
    ]
    figures += [Figure(launch.BEYOND, OURS, "s", [0.1, 0.1], Size(tasks, "tasks")) for tasks in (1, 2, 32)]
    figures.append(Figure("master, resident", OURS, "MiB", [50.0], Size(launch.COSTS_OF, "tasks")))
    found = said(launch.ratios(figures))
    of_both = {
        "last user process, 2 tasks: ratio to floor": (2.0, ""),
        "whole job, 2 tasks: ratio to skein": (0.5, ""),
        "submit returns, 2 tasks": (2.0, "at most 0.25"),
    }
    of_two = {
        "first user process, 2 tasks: ratio to floor": (2.0, "at most 1.35"),
        "first user process, 2 tasks: ratio to skein": (0.5, ""),
        "whole job, 2 tasks: ratio to floor": (2.0, ""),
        "last process ended until the client knows, 2 tasks": (2.0, "at most 0.6"),
        "master, resident, 2 tasks": (50.0, ""),
    }
    of_many = {
        "last user process, 32 tasks: ratio to skein": (0.5, ""),
        "whole job, 32 tasks: ratio to floor": (2.0, "at most 1.1"),
        "last process ended until the client knows, 32 tasks": (2.0, "at most 1.2"),
        **{name.replace("2 tasks", "32 tasks"): value for name, value in of_both.items()},
    }
    assert found == {**of_both, **of_two, **of_many}


def test_launch_without_those_that_cannot_be_had() -> None:
    figures = [Figure("first user process", OURS, "s", [2.0], Size(2, "tasks"))]
    assert launch.ratios(figures) == []


def test_overhead() -> None:
    figures = [
        Figure(f"{what}, {overhead.SECOND.name}", who, "s", [value])
        for what in ("launch", "training wall", "epoch")
        for who, value in ((OURS, 3.0), (overhead.BY_HAND, 2.0))
    ]
    assert said(overhead.ratios(figures, [overhead.SECOND])) == {
        "training wall, a checkpoint each second: ratio to by hand": (1.5, "at most 1.04"),
        "epoch, a checkpoint each second: ratio to by hand": (1.5, ""),
    }


def test_overhead_saves_as_often_on_every_machine() -> None:
    assert overhead.Epochs.of(overhead.SECOND, 0.5) == overhead.Epochs(60, 2)
    assert overhead.Epochs.of(overhead.SECOND, 3.0) == overhead.Epochs(10, 1)
    assert overhead.Epochs.of(overhead.MINUTE, 0.25) == overhead.Epochs(264, 240)


def test_recovery_has_no_ratio_of_nothing() -> None:
    figures = [Figure(what, OURS, "s", [0.5]) for what in ("user process killed", recovery.NOT_RUNNING)]
    figures += [Figure(what, "skein", "s", [2.0]) for what in ("user process killed", recovery.NOT_RUNNING)]
    assert said(recovery.ratios(figures)) == {"user process killed: ratio to skein": (0.25, "")}


def of_masters(memory: dict[int, list[float]]) -> list[Figure]:
    return [
        Figure(what, OURS, unit, memory[tasks] if each == "memory" else [0.5, 0.5], Size(tasks, "tasks"))
        for tasks in memory
        for each, (what, unit) in scale.WHATS.items()
    ]


def test_scale_tells_the_largest_job_and_how_memory_grows() -> None:
    sizes = {100: [60.0, 70.0], 1000: [150.0, 160.0], 3000: [390.0, 400.0]}
    found = said(scale.ratios(of_masters(sizes), list(sizes)))
    assert found.pop("master, peak resident memory, 3,000 tasks") == (395.0, "at most 912")
    growth, aim = found.pop("memory of a further task, up to 3,000 tasks: ratio to 1,000 tasks")
    assert growth == pytest.approx(0.12 / 0.1)
    assert aim == "at most 1.3"
    assert all(name.endswith(", 3,000 tasks") for name in found)
    assert len(found) == len(scale.MOST)


@given(st.integers(20, 200), st.floats(0.01, 1.0))
def test_memory_that_grows_with_the_tasks_has_a_ratio_of_one(least: int, of_a_task: float) -> None:
    sizes = {tasks: [least + of_a_task * tasks] for tasks in (100, 1000, 10_000)}
    (growth,) = (ratio for ratio in scale.ratios(of_masters(sizes), list(sizes)) if ratio.of)
    assert growth.median == pytest.approx(1.0)


def test_grants_are_held_to_what_they_were() -> None:
    figures = [Figure(what, OURS, "s", [2.0], Size(100, "containers")) for what in (grants.GRANTED, grants.CPU)]
    assert said(grants.ratios(figures)) == {f"{grants.GRANTED}, 100 containers": (2.0, "")}


def test_triggerer() -> None:
    figures = [
        Figure(what, who, "s", [value], Size(1000, "jobs"))
        for what in ("requests while nothing ends", "requests for lists")
        for who, value in ((OURS, 1.0), (triggerer.NAIVE, 40.0))
    ]
    assert said(triggerer.ratios(figures)) == {
        "requests while nothing ends, 1,000 jobs: ratio to naive poll": (0.025, "")
    }


def test_the_memory_of_triggers_is_compared_with_what_any_deferred_task_costs() -> None:
    what = triggerer.MEMORY["proportional"]
    held = {OURS: 10.0, triggerer.NAIVE: 40.0, triggerer.WAITS: 5.0}
    figures = [Figure(what, who, "MiB", [value], Size(1000, "jobs")) for who, value in held.items()]
    assert said(triggerer.ratios(figures)) == {
        f"{what}, 1,000 jobs: ratio to naive poll": (0.25, ""),
        f"{what}, 1,000 jobs: ratio to only waits": (2.0, ""),
    }


@given(st.lists(st.integers(), max_size=50), st.integers(1, 9))
def test_parts_are_all_of_it_and_about_as_long_as_each_other(values: list[int], number: int) -> None:
    found = triggerer.parts(values, number)
    assert [value for part in found for value in part] == values
    assert len(found) == number
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=60))
def test_within_the_late_latency_are_95_of_100(latencies: list[float]) -> None:
    watched = triggerer.Watched(0.0, {}, 0.0, Memory(), latencies)
    within = sum(each <= watched.late for each in latencies)
    assert within >= 0.95 * len(latencies)
    assert watched.median == statistics.median(latencies)
    assert sum(each < watched.late for each in latencies) < 0.95 * len(latencies)

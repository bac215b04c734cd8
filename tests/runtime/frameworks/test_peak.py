"""Which task types hold containers at the same time."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.frameworks.task_type_rules import PeakDemand
from tony_provider.runtime.jobspec.model import JobSpec, Milestone, RestartScope, Role, StartRule, TaskSpec

STARTED, READY, SUCCEEDED = Milestone.STARTED, Milestone.READY, Milestone.SUCCEEDED


def job(framework: str = "generic", start: StartRule = StartRule.GANG, /, **tasks: dict[str, Any]) -> JobSpec:
    return JobSpec(framework, {name: TaskSpec("true", **how) for name, how in tasks.items()}, start=start)


def together(spec: JobSpec) -> set[frozenset[str]]:
    """All sets of two types that may be there at the same time."""
    peak = PeakDemand(spec)
    pairs = [frozenset(pair) for pair in combinations(spec.tasks, 2)]
    return {pair for pair in pairs if peak.heaviest(dict.fromkeys(pair, 1)) == pair}


def pairs(*written: str) -> set[frozenset[str]]:
    return {frozenset(pair.split("+")) for pair in written}


EXPORT = {"role": Role.ONCE, "after": {"worker": SUCCEEDED}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (job(worker={}, evaluator={}), pairs("worker+evaluator")),
        (job(prepare={}, worker={}, export=EXPORT), set()),
        (job(prepare={}, worker={}, sidecar={}), pairs("worker+sidecar")),
        (job(worker={}, service={"role": Role.SIDECAR}, export=EXPORT), pairs("worker+service", "service+export")),
        # What was started may run on.
        (job("standalone", worker={}, more={"after": {"worker": STARTED}}), pairs("worker+more")),
        # A service that begins when the training is over, and what waits for that one.
        (
            job(
                "standalone",
                first={},
                service={"role": Role.SIDECAR, "after": {"once": SUCCEEDED}},
                once={"role": Role.ONCE, "after": {"first": SUCCEEDED}},
                last={"after": {"service": READY}},
            ),
            pairs("service+last"),
        ),
        # A gang gives nothing back before all of it has succeeded.
        (job(chief={}, worker={}, export=EXPORT), pairs("chief+worker", "worker+export", "chief+export")),
        (
            job(chief={}, worker={}, export={"role": Role.ONCE, "after": {"worker": SUCCEEDED, "chief": SUCCEEDED}}),
            pairs("chief+worker"),
        ),
        # Parameter servers are stopped at the end.
        (job(ps={}, worker={}, export=EXPORT), pairs("ps+worker", "ps+export")),
        # A task that starts again alone is over when it has succeeded.
        (
            job(
                worker={},
                helper={"restart": RestartScope.TASK},
                export={"role": Role.ONCE, "after": {"helper": SUCCEEDED}},
            ),
            pairs("worker+helper", "worker+export"),
        ),
        # Whatever ends by itself can take its turn.
        (
            job("standalone", StartRule.FIRST_COME, worker={}, more={}, once={"role": Role.ONCE}, sidecar={}),
            pairs("worker+sidecar", "more+sidecar", "once+sidecar"),
        ),
    ],
)
def test_who_is_there_together(spec: JobSpec, expected: set[frozenset[str]]) -> None:
    assert together(spec) == expected


MILESTONES = st.dictionaries(st.integers(0, 5), st.sampled_from([STARTED, SUCCEEDED]), max_size=3)


@given(
    waits=st.lists(MILESTONES, min_size=1, max_size=6),
    weights=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    start=st.sampled_from(StartRule),
)
def test_the_heaviest_is_the_heaviest_of_all_that_may_be_together(
    waits: list[dict[int, Milestone]], weights: list[int], start: StartRule
) -> None:
    tasks = {
        f"t{index}": {"after": {f"t{other}": how for other, how in after.items() if other < index}}
        for index, after in enumerate(waits)
    }
    spec = job("standalone", start, **tasks)
    possible = together(spec)
    of_each = {name: weights[index] for index, name in enumerate(spec.tasks)}
    most = max(
        sum(of_each[name] for name in names)
        for number in range(len(tasks) + 1)
        for names in combinations(tasks, number)
        if all(frozenset(pair) in possible for pair in combinations(names, 2))
    )
    chosen = PeakDemand(spec).heaviest(of_each)
    assert all(frozenset(pair) in possible for pair in combinations(chosen, 2))
    assert sum(of_each[name] for name in chosen) == most


def test_many_stages_side_by_side_take_no_time() -> None:
    tasks: dict[str, dict[str, Any]] = {"prepare": {}}
    for number in range(40):
        tasks[f"a{number}"] = {}
        tasks[f"b{number}"] = {"after": {f"a{number}": SUCCEEDED}}
    weights = {name: 3 if name.startswith("b") else 2 for name in tasks}
    assert PeakDemand(job("standalone", **tasks)).heaviest(weights) == {f"b{number}" for number in range(40)}

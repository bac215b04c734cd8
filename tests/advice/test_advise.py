"""All rules together: how much is said, in which order, and what becomes of histories that are damaged."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.advice.cases import GIB, TIMES, history, run, sample, use
from tony_provider.advice.advise import MOST, RULES, advice_lines, advise, merged_change, rule_documentation
from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.common.codec import dump_json, load_json
from tony_provider.runtime.parsing.parse import parse_job

WASTEFUL = [use(most_rss_bytes=GIB, mean_cpu_percent=50.0, gpus=1, mean_gpu_percent=3.0)]
ROUGH = attrs.evolve(TIMES, queue=7200.0, restarts=600.0, repeated=900.0)


def test_three_at_most_the_greatest_gain_first() -> None:
    found = advise(history(used=WASTEFUL, times=ROUGH, restarts=4))
    assert [each.rule for each in found] == ["gpus-idle", "queue-wait", "memory-too-much"]
    assert len(found) == MOST


def test_the_changes_of_all_are_one_patch_that_fits_the_job() -> None:
    job = history(used=[use(most_rss_bytes=GIB, mean_cpu_percent=50.0)])
    change = merged_change(advise(job))
    assert change == {"tasks": {"worker": {"memory": "1536MiB", "vcores": 1}}}
    assert job.specification is not None
    assert parse_job(job.specification.job, overrides=change).tasks["worker"].vcores == 1


def test_of_two_changes_of_a_key_the_one_with_more_gain_counts() -> None:
    first, second = ({"tasks": {"worker": {"vcores": n}}} for n in (1, 2))
    assert merged_change([Advice(rule="a", text="", change=first), Advice(rule="b", text="", change=second)]) == first
    assert merged_change([Advice(rule="a", text="")]) == {}


class _Broken(Rule):
    name = "broken"

    def advise(self, case: Case) -> Advice | None:
        raise ZeroDivisionError("nothing was measured")


class _Unfit(Rule):
    name = "unfit"

    def advise(self, case: Case) -> Advice | None:
        return self.advice("Do as I say", 0.5, change={"tasks": {"worker": {"memory": "none"}}})


def test_a_rule_that_fails_is_named_and_costs_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = advise(history(used=WASTEFUL), rules=[_Broken(), *RULES])
    assert found[0].rule == "gpus-idle"
    assert "Skipping the advice rule broken for application_1_0009: ZeroDivisionError" in caplog.text


def test_a_change_that_the_job_would_be_refused_with_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        [found] = advise(history(), rules=[_Unfit()])
    assert (found.text, found.change) == ("Do as I say", None)
    assert "The change that the rule unfit recommends is invalid" in caplog.text


DAMAGED: list[Any] = [
    JobHistory(application_id="application_1_0001"),
    attrs.evolve(history(), events=[{}, {"event": "checkpoint"}, {"event": "node_loss", "time_ms": 1, "data": 3}]),
    attrs.evolve(history(), specification=SpecificationRecord(job={"tasks": "all of them"})),
    attrs.evolve(history(), specification=None, status=None),
    history(samples=[sample(0, "worker", step=-1, metrics={"<b>loss": float("nan")})], used=[use(container_seconds=0)]),
    history(used=[use(tasks=0, vcores=0, memory_bytes=0, used_seconds=-1.0)], times=attrs.evolve(TIMES, training=-9e9)),
]


@pytest.mark.parametrize("job", DAMAGED)
def test_nothing_is_raised_for_a_damaged_history(job: JobHistory) -> None:
    assert len(advise(job, [run(1)])) <= MOST


def test_the_application_itself_is_not_among_the_former_ones() -> None:
    same = attrs.evolve(run(9), application_id="application_1_0009")
    [found] = advise(history(used=[use(most_rss_bytes=GIB)]), [same])
    assert found.confidence is Confidence.LOW


def test_advice_is_read_back_as_it_was_written() -> None:
    for each in advise(history(used=WASTEFUL, times=ROUGH, restarts=4)):
        assert load_json(dump_json(each), Advice) == each


def test_every_rule_has_a_section_in_the_documents_and_a_name_of_its_own() -> None:
    page = (Path(__file__).parents[2] / "docs" / "advice.md").read_text()
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert [name for name in names if f"\n## {name}\n" not in page] == []
    assert all(
        rule_documentation(name).startswith("*Checks*") and "\n#" not in rule_documentation(name) for name in names
    )
    assert rule_documentation(names[-1]) in page


def test_an_installed_package_has_the_page_of_the_rules() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    files = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert Path(files["docs/advice.md"]) == Path("tony_provider/advice/advice.md")


def test_a_log_says_where_there_is_more() -> None:
    found = advise(history(used=WASTEFUL, times=ROUGH, restarts=4))
    lines = advice_lines(found, "application_1_0009")
    assert [each.startswith("Advice: ") for each in lines] == [True, True, True, False]
    assert lines[-1].endswith("airflow tony advise application_1_0009 --explain")
    assert advice_lines([], "application_1_0009") == []

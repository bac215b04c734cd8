"""Advice for a job that is about to run, by what former ones have used."""

from __future__ import annotations

import attrs
import pytest

from tests.advice.cases import GIB, JOB, TIMES, run, use
from tony_provider.advice.advise import advise_next, merged_change
from tony_provider.cluster.records.summary import KEPT, Curve, JobSummary, PreviousRuns, task_identity
from tony_provider.runtime.common.codec import CodecError, dump_json, from_plain, load_json, to_plain
from tony_provider.runtime.parsing.parse import merge, parse_job
from tony_provider.runtime.protocol.status import FinalStatus

OWN = parse_job(JOB)  # 8 GiB, 4 vcores
SMALL = use(most_rss_bytes=GIB, mean_cpu_percent=50.0)


def wanted(*former: JobSummary) -> dict[str, object]:
    found = advise_next(OWN, former)
    return merged_change(found.advice)["tasks"]["worker"] if found and merged_change(found.advice) else {}


def test_the_last_success_and_those_before_it() -> None:
    assert wanted(run(1, use=[SMALL])) == {"memory": "1536MiB", "vcores": 1}
    assert wanted(run(1, use=[use(most_rss_bytes=2 * GIB)]), run(2, use=[SMALL]))["memory"] == "2816MiB"


def test_it_holds_once_it_was_followed() -> None:
    """The run before asked for little already: what counts is what the DAG says."""
    followed = use(most_rss_bytes=GIB, memory_bytes=3 * GIB // 2, vcores=1, mean_cpu_percent=50.0)
    assert wanted(run(1, use=[followed])) == {"memory": "1536MiB", "vcores": 1}


def test_a_run_that_had_fewer_vcores_and_used_them_all_asks_for_no_fewer() -> None:
    """It does not tell what it would have used: vcores go up again, and never down step by step."""
    reduced = use(vcores=2, mean_cpu_percent=60.0, most_cpu_percent=195.0, most_rss_bytes=6 * GIB)
    assert wanted(run(1, use=[reduced])) == {"vcores": 3}
    starved = use(vcores=2, mean_cpu_percent=20.0, most_rss_bytes=6 * GIB)
    assert wanted(run(1, use=[reduced]), run(2, use=[starved])) == {"vcores": 3}
    full = use(vcores=3, mean_cpu_percent=280.0, most_rss_bytes=6 * GIB)
    assert wanted(run(1, use=[full])) == {}
    assert wanted(run(1, use=[attrs.evolve(starved, crowded_percent=50.0)])) == {}


def test_a_run_that_was_over_at_once_tells_nothing_but_that_its_memory_was_too_little() -> None:
    short = attrs.evolve(TIMES, training=30.0)
    assert wanted(run(1, use=[SMALL], times=short)) == {}
    killed = run(2, verdict=FinalStatus.FAILED, failure_kind="OUT_OF_MEMORY", failed_task="worker:1", times=short)
    assert wanted(killed) == {"memory": "12GiB"}


def test_failures_tell_nothing_but_one_for_memory() -> None:
    failed = run(2, verdict=FinalStatus.FAILED, failure_kind="USER", use=[use(most_rss_bytes=100)])
    assert wanted(failed) == {}
    assert wanted(run(1, use=[SMALL]), failed)["memory"] == "1536MiB"
    killed = run(3, verdict=FinalStatus.FAILED, failure_kind="OUT_OF_MEMORY", failed_task="worker:1", use=[SMALL])
    assert wanted(run(1, use=[SMALL]), killed) == {"memory": "12GiB"}
    assert wanted() == {}


def test_task_types_that_the_job_no_longer_has_and_tensorboard() -> None:
    job = parse_job(merge(JOB, {"tensorboard": True}))
    others = [use(type="ps", most_rss_bytes=GIB), use(type="tensorboard", most_rss_bytes=1000), SMALL]
    found = advise_next(job, [run(1, use=others)])
    assert found is not None
    assert list(merged_change(found.advice)["tasks"]) == ["worker"]


def test_so_many_are_kept_without_curves_and_none_twice() -> None:
    runs = PreviousRuns()
    for number in range(KEPT + 5):
        curve = Curve(metric="loss", steps=[1], seconds=[1.0], values=["NaN"])
        runs = runs.with_run(run(number, curves=[curve], metrics={"loss": "NaN", "auc": 0.5}))
    runs = runs.with_run(run(KEPT, restarts=3))
    ids = [each.application_id for each in runs.summaries]
    assert (len(ids), ids[0], ids[-1]) == (KEPT, "application_1_0005", f"application_1_{KEPT:04}")
    assert all(not each.curves for each in runs.summaries)
    assert load_json(dump_json(runs), PreviousRuns) == runs


@pytest.mark.parametrize("wrong", [True, None, []])
def test_a_number_in_a_summary_is_one(wrong: object) -> None:
    with pytest.raises(CodecError, match="expected a number"):
        from_plain({**to_plain(run(1)), "metrics": {"loss": wrong}}, JobSummary)


def test_a_task_is_the_same_in_all_runs() -> None:
    labels = {"dag_id": "d", "task_id": "t", "run_id": "r1"}
    same = task_identity("n", {**labels, "run_id": "r2"})
    assert task_identity("n", labels) == same is not None
    others = [{**labels, **more} for more in ({"map_index": "1"}, {"checkpoint_key": "de"}, {"task_id": "u"})]
    assert len({same, *(task_identity("n", each) for each in others)}) == 4
    assert task_identity("n", {"submitted_by": "alice"}) is None

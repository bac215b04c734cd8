"""Stragglers, and tasks that wait for their input."""

from __future__ import annotations

from tests.advice.cases import evolved, history, run, said, sample, silent, use
from tony_provider.advice.rules.pace import InputWait, Straggler
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import TaskSample

STRAGGLER, INPUT = Straggler(), InputWait()


def speeds(*of: float | None) -> list[TaskSample]:
    return [sample(at, f"worker:{index}", steps_per_second=each) for at in range(10) for index, each in enumerate(of)]


def test_a_straggler_is_named_with_its_node() -> None:
    advice = said(STRAGGLER, history(samples=speeds(4.0, 4.2, 4.1, 2.0)))
    assert advice.text.startswith("worker:3 on n3 ran at 2 steps/s, the other tasks at 4.1 steps/s: ")
    assert (advice.evidence["node"], advice.confidence) == ("n3", Confidence.LOW)


def test_the_same_node_before_makes_it_sure() -> None:
    before = [Advice(rule="straggler", text="", evidence={"task": f"worker:{n}", "node": "n3"}) for n in (0, 1)]
    former = [run(1, advice=before[:1]), run(2, advice=before[1:]), run(3)]
    advice = said(STRAGGLER, history(samples=speeds(4.0, 4.2, 4.1, 2.0)), former)
    assert advice.confidence is Confidence.HIGH
    assert advice.text.endswith("check its node, which also had the slowest task in 2 of 3 earlier runs")


def test_the_same_task_before_is_no_matter_of_the_node() -> None:
    before = Advice(rule="straggler", text="", evidence={"task": "worker:3", "node": "n3"})
    former = [run(1, advice=[before]), run(2, advice=[before])]
    advice = said(STRAGGLER, history(samples=speeds(4.0, 4.2, 4.1, 2.0), nodes=["n3"] * 4), former)
    assert advice.confidence is Confidence.HIGH
    assert advice.text.endswith("since it was also the slowest in 2 of 2 earlier runs")


def test_who_keeps_step_is_no_straggler() -> None:
    assert silent(STRAGGLER, history(samples=speeds(4.0, 4.2, 4.1, 3.5)))
    assert silent(STRAGGLER, history(samples=speeds(4.0, 1.0)))  # which of the two is odd?
    assert silent(STRAGGLER, history(samples=speeds(4.0, 4.0, None, float("nan"))))
    assert silent(STRAGGLER, history(samples=speeds(4.0, 4.0, 4.0, 1.0)[:8]))
    assert silent(STRAGGLER, history())


def test_a_straggler_whose_node_is_not_known() -> None:
    assert said(STRAGGLER, evolved(history(samples=speeds(4.0, 4.2, 4.1, 2.0)), tasks=[])).evidence["node"] is None


def waits(share: float) -> list[TaskSample]:
    return [sample(at, metrics={"input_wait": share}) for at in range(10)]


def test_a_program_that_says_it_waits() -> None:
    advice = said(INPUT, history(samples=waits(0.4), used=[use(mean_cpu_percent=100.0)]))
    assert advice.text == (
        "Each worker waited 40% of its time for input: read ahead, in several threads, or from fewer and larger files"
    )
    assert (round(advice.gain, 2), advice.change) == (0.4, None)
    busy = said(INPUT, history(samples=waits(0.4), used=[use(mean_cpu_percent=390.0)]))
    assert busy.change == {"tasks": {"worker": {"vcores": 8}}}


def test_one_that_does_not() -> None:
    reads = [sample(at, values={"read_bytes": 1 << 30}, metrics={"input_wait": 0.05}) for at in range(10)]
    assert silent(INPUT, history(samples=waits(0.1)))
    assert silent(INPUT, history(samples=waits(0.9)[:3]))
    assert silent(INPUT, history(samples=waits(7.0)))  # no share
    assert silent(INPUT, history(samples=reads, used=[use(mean_cpu_percent=20.0)]))


def test_much_reading_and_little_work_where_nobody_says_it() -> None:
    reads = [sample(at, values={"read_bytes": 1 << 30}) for at in range(10)]
    advice = said(INPUT, history(samples=reads, used=[use(mean_cpu_percent=40.0)]))
    assert (advice.confidence, advice.change) == (Confidence.LOW, None)
    assert "read 102 MiB a second" in advice.text
    assert silent(INPUT, history(samples=reads))
    assert silent(INPUT, history(samples=reads, used=[use(mean_cpu_percent=40.0, gpus=1, mean_gpu_percent=90.0)]))
    assert silent(
        INPUT,
        history(samples=[sample(at, values={"read_bytes": 100}) for at in range(10)], used=[use(mean_cpu_percent=4)]),
    )

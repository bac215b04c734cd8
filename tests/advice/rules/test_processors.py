"""Processors and GPUs asked for and used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import GIB, HOUR, history, run, said, sample, silent, use
from tony_provider.advice.case import Case
from tony_provider.advice.rules.gpus_idle import GpusIdle
from tony_provider.advice.rules.vcores_idle import VcoresIdle
from tony_provider.cluster.history.advice import Confidence
from tony_provider.runtime.protocol.status import JobState

VCORES, GPUS = VcoresIdle(), GpusIdle()


def test_idle_vcores() -> None:
    former = [run(n, use=[use(mean_cpu_percent=95.0)]) for n in (1, 2)]
    advice = said(VCORES, history(used=[use(mean_cpu_percent=80.0)]), former)
    assert advice.text == "Ask for 2 vcores for each worker in place of 4: one kept 0.8 processors busy on average"
    assert advice.change == {"tasks": {"worker": {"vcores": 2}}}
    assert (advice.confidence, advice.gain) == (Confidence.HIGH, 0.25)


def test_busy_vcores_and_those_of_short_or_failed_jobs() -> None:
    assert silent(VCORES, history())
    assert silent(VCORES, history(used=[use(mean_cpu_percent=None)]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=10.0, used_seconds=100.0)]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=10.0, vcores=1)]))
    assert silent(VCORES, history(state=JobState.FAILED, used=[use(mean_cpu_percent=10.0)]))


def test_vcores_that_are_needed_at_times_stay() -> None:
    busy = [sample(at, cpu_percent=390.0 if at % 5 == 0 else 20.0) for at in range(40)]
    assert silent(VCORES, history(used=[use(mean_cpu_percent=80.0)], samples=busy))


@given(mean=st.floats(0, 10_000), vcores=st.integers(1, 128))
def test_who_follows_the_advice_has_processors_left(mean: float, vcores: int) -> None:
    advice = VCORES.advise(Case(history(used=[use(mean_cpu_percent=mean, vcores=vcores)])))
    if advice is None:
        return
    assert advice.change is not None
    wanted = advice.change["tasks"]["worker"]["vcores"]
    assert mean / 100 <= wanted < vcores
    assert silent(VCORES, history(used=[use(mean_cpu_percent=mean, vcores=wanted)]))


def test_idle_gpus_of_a_program_that_uses_one_of_them() -> None:
    job = {"tasks": {"worker": {"gpus": 4}}}
    advice = said(GPUS, history(job=job, used=[use(gpus=4, mean_gpu_percent=18.0, most_gpu_bytes=GIB)]))
    assert advice.text == (
        "The GPUs of each worker were busy 18 % of the time: ask for 1 GPU in place of 4, or give it bigger batches"
    )
    assert advice.change == {"tasks": {"worker": {"gpus": 1}}}
    assert round(advice.gain, 2) == 0.82


def test_gpus_that_nobody_touches() -> None:
    job = history(job={"tasks": {"worker": {"gpus": 1}}}, used=[use(gpus=1, mean_gpu_percent=0.0)])
    advice = said(GPUS, job)
    assert advice.change == {"tasks": {"worker": {"gpus": 0}}}
    assert advice.text.endswith("busy 0 % of the time: see why it does not find it, or ask for none")


def test_fewer_gpus_would_be_fewer_processes() -> None:
    job = {"tasks": {"worker": {"gpus": 4, "processes": "gpus"}}}
    advice = said(GPUS, history(job=job, used=[use(gpus=4, mean_gpu_percent=18.0)]))
    assert advice.change is None
    assert "bigger batches" in advice.text


def test_busy_gpus_and_none() -> None:
    assert silent(GPUS, history())
    assert silent(GPUS, history(used=[use(gpus=1, mean_gpu_percent=85.0)]))
    assert silent(GPUS, history(used=[use(gpus=1, mean_gpu_percent=None)]))
    assert silent(GPUS, history(used=[use(gpus=1, mean_gpu_percent=5.0, used_seconds=HOUR / 100)]))

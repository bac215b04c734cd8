"""Processors and GPUs asked for and used."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import GIB, HOUR, TIMES, history, run, said, silent, use
from tony_provider.advice.case import ENOUGH_TRAINING, Case
from tony_provider.advice.rules.idle_processors import GpusIdle, VcoresIdle
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import Confidence
from tony_provider.runtime.protocol.status import JobState

VCORES, GPUS = VcoresIdle(), GpusIdle()


def test_idle_vcores() -> None:
    former = [run(n, use=[use(mean_cpu_percent=95.0)]) for n in (1, 2)]
    advice = said(VCORES, history(used=[use(mean_cpu_percent=80.0, most_cpu_percent=170.0)]), former)
    assert advice.text == (
        "Request 2 vcores for each worker instead of 4: a task kept 0.8 processors busy on average, and 1.7 in its "
        "busiest half minute"
    )
    assert advice.change == {"tasks": {"worker": {"vcores": 2}}}
    assert (advice.confidence, advice.gain) == (Confidence.HIGH, 0.25)


def test_busy_vcores_and_those_of_short_or_failed_jobs() -> None:
    assert silent(VCORES, history())
    assert silent(VCORES, history(used=[use(mean_cpu_percent=None)]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=10.0, used_seconds=100.0)]))
    starting = attrs.evolve(TIMES, start=HOUR, training=ENOUGH_TRAINING - 1)
    assert silent(VCORES, history(used=[use(mean_cpu_percent=10.0)], times=starting))
    assert silent(
        VCORES, history(job={"tasks": {"worker": {"vcores": 1}}}, used=[use(mean_cpu_percent=10.0, vcores=1)])
    )
    assert silent(VCORES, history(state=JobState.FAILED, used=[use(mean_cpu_percent=10.0)]))


def test_vcores_that_are_needed_at_times_stay() -> None:
    busy = use(mean_cpu_percent=80.0, most_cpu_percent=390.0)
    assert silent(VCORES, history(used=[busy]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=80.0)]), [run(use=[busy])])


def test_it_is_not_known_what_would_be_used_on_a_crowded_node() -> None:
    assert silent(VCORES, history(used=[use(mean_cpu_percent=80.0, crowded_percent=30.0)]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=80.0, crowded_percent=None)]))
    assert silent(VCORES, history(used=[use(mean_cpu_percent=80.0, most_cpu_percent=None)]))
    former = [run(n, use=[use(mean_cpu_percent=80.0, crowded_percent=30.0)]) for n in (1, 2)]
    assert said(VCORES, history(used=[use(mean_cpu_percent=80.0)]), former).confidence is Confidence.LOW


@given(mean=st.floats(0, 10_000), more=st.floats(0, 10_000), vcores=st.integers(1, 128))
def test_who_follows_the_advice_has_processors_left(mean: float, more: float, vcores: int) -> None:
    def asking(for_vcores: int) -> JobHistory:
        figures = use(mean_cpu_percent=mean, most_cpu_percent=mean + more, vcores=for_vcores)
        return history(job={"tasks": {"worker": {"vcores": for_vcores}}}, used=[figures])

    advice = VCORES.advise(Case(asking(vcores)))
    if advice is None:
        return
    assert advice.change is not None
    wanted = advice.change["tasks"]["worker"]["vcores"]
    assert (mean + more) / 100 - 0.05 <= wanted < vcores
    assert silent(VCORES, asking(wanted))


def test_idle_gpus_of_a_program_that_uses_one_of_them() -> None:
    job = {"tasks": {"worker": {"gpus": 4}}}
    advice = said(GPUS, history(job=job, used=[use(gpus=4, mean_gpu_percent=18.0, most_gpu_bytes=GIB)]))
    assert advice.text == (
        "The GPUs of each worker were busy 18 % of the time: request 1 GPU instead of 4, or use bigger batches"
    )
    assert advice.change == {"tasks": {"worker": {"gpus": 1}}}
    assert round(advice.gain, 2) == 0.82


def test_gpus_that_nobody_touches() -> None:
    job = history(job={"tasks": {"worker": {"gpus": 1}}}, used=[use(gpus=1, mean_gpu_percent=0.0)])
    advice = said(GPUS, job)
    assert advice.change == {"tasks": {"worker": {"gpus": 0}}}
    assert advice.text.endswith("busy 0 % of the time: check why the program does not use it, or request none")


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

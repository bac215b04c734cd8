"""Learning curves, and evaluations that are missing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import TIMES, evolved, history, said, sample, silent
from tony_provider.advice.case import Case
from tony_provider.advice.rules.flat_curve import FlatCurve
from tony_provider.advice.rules.missing_reports import EvaluationMissing, NothingReported
from tony_provider.cluster.records.history import JobHistory
from tony_provider.runtime.protocol.status import JobState, TaskProgress, TaskState, TaskStatus

FLAT, EVALUATION, NOTHING = FlatCurve(), EvaluationMissing(), NothingReported()


def curve(of: Callable[[int], float], metric: str = "loss", steps: int = 200) -> JobHistory:
    noise = [0.001 * (-1) ** step for step in range(steps)]
    return history(samples=[sample(at, step=10 * at, metrics={metric: of(at) + noise[at]}) for at in range(steps)])


def test_a_curve_that_was_flat_from_its_half_on() -> None:
    advice = said(FLAT, curve(lambda at: max(1.0, 3.0 - at / 40)))
    assert advice.text.startswith("loss got no better than 1 after step ")
    assert 750 <= advice.evidence["flat_from_step"] <= 900
    assert 0.5 < advice.gain < 0.65


def test_a_measure_that_rises() -> None:
    assert said(FLAT, curve(lambda at: min(0.9, at / 100), "val_accuracy")).evidence["metric"] == "val_accuracy"
    assert silent(FLAT, curve(lambda at: at / 200, "val_accuracy"))


def test_curves_that_went_on_that_never_learned_and_that_say_nothing() -> None:
    assert silent(FLAT, curve(lambda at: 3.0 - at / 100))
    assert silent(FLAT, curve(lambda at: 1.0 + at))  # it got worse
    assert silent(FLAT, curve(lambda at: max(1.0, 3.0 - at / 40), "temperature"))
    assert silent(FLAT, curve(lambda at: max(1.0, 3.0 - at / 10), steps=30))
    assert silent(FLAT, curve(lambda at: math.nan))
    assert silent(FLAT, evolved(curve(lambda at: max(1.0, 3.0 - at / 40)), state=JobState.FAILED))
    late = [(at if at < 39 else 4000 * (at - 38), max(1.0, 3.0 - at / 19)) for at in range(41)]
    sparse = [sample(at, step=step, metrics={"loss": loss}) for at, (step, loss) in enumerate(late)]
    assert silent(FLAT, history(samples=sparse))
    assert silent(FLAT, history())


def test_noise_is_neither_a_plateau_nor_hides_that_it_went_on() -> None:
    """Of mini-batches: their loss jumps by more than what is still learned."""
    told = 0
    for seed in range(50):
        chance = random.Random(seed)
        for loss in (lambda at: 0.5 + 0.5 * (1 + at / 10) ** -0.5, lambda _: 0.69):
            job = curve(lambda at, loss=loss, chance=chance: loss(at) + chance.gauss(0, 0.09))  # type: ignore[misc]
            told += FLAT.advise(Case(job)) is not None
    assert told <= 5


def epochs(count: int, of: Callable[[int], float], samples: int = 6) -> JobHistory:
    """What is measured at the end of each epoch, as all samples have it until the next one."""
    taken = range(count * samples)
    return history(samples=[sample(at, step=10 * at, metrics={"val_loss": of(at // samples)}) for at in taken])


def test_what_is_measured_seldom_is_not_taken_for_many_measurements() -> None:
    """As fifteen epochs of Keras over noise gave it, for which the rule took the last nine as wasted."""
    losses = [2.3065, 2.3044, 2.3049, 2.3045, 2.3051, 2.3056, 2.3032, 2.3040, 2.3052, 2.3061, 2.3052, 2.3080, 2.3062]
    assert silent(FLAT, epochs(len(losses), lambda epoch: losses[epoch]))
    assert said(FLAT, epochs(100, lambda epoch: max(1.0, 3.0 - epoch / 20) + 0.001 * (-1) ** epoch))


def test_a_measure_that_does_not_change_any_more_is_flat() -> None:
    ending = [sample(at, step=10 * at, metrics={"accuracy": min(1.0, 0.5 + at / 100)}) for at in range(200)]
    assert said(FLAT, history(samples=ending)).evidence["metric"] == "accuracy"


@given(st.lists(st.floats(), min_size=40, max_size=120))
def test_any_curve_is_borne(values: list[float]) -> None:
    samples = [sample(at, step=at, metrics={"loss": value}) for at, value in enumerate(values)]
    advice = FLAT.advise(Case(history(samples=samples)))
    assert advice is None or 0 <= advice.evidence["flat_from_step"] <= 0.6 * len(values)


def reporting(*metrics: str) -> JobHistory:
    progress = TaskProgress(10, metrics=dict.fromkeys(metrics, 1.0))
    return evolved(history(), tasks=[TaskStatus("worker", 0, TaskState.SUCCEEDED, progress=progress)])


def test_nobody_evaluates() -> None:
    advice = said(EVALUATION, reporting("loss", "accuracy", "input_wait"))
    assert advice.text.startswith("The job reports only training metrics (accuracy, loss): ")
    assert advice.gain < 0.05


def test_somebody_does() -> None:
    assert silent(EVALUATION, reporting("loss", "val_loss"))
    assert silent(EVALUATION, reporting("loss", "auc"))
    assert silent(EVALUATION, reporting())  # it reports nothing at all, which is another matter
    assert silent(EVALUATION, reporting("rows", "input_wait"))  # it scores rows, and trains nothing
    short = evolved(reporting("loss"), times=attrs.evolve(TIMES, training=60.0))
    assert silent(EVALUATION, short)
    job = {"framework": "tensorflow", "tasks": {"evaluator": {"command": "x"}, "chief": {"command": "x"}}}
    assert silent(EVALUATION, attrs.evolve(reporting("loss"), specification=history(job=job).specification))


def test_a_program_that_says_nothing() -> None:
    quiet = evolved(history(), tasks=[TaskStatus("worker", 0, TaskState.SUCCEEDED)])
    advice = said(NOTHING, quiet)
    assert all(way in advice.text for way in ("tony_sdk", "TONY_METRICS_FILE", "TONY_TENSORBOARD_DIR"))
    assert silent(NOTHING, history())
    assert silent(NOTHING, evolved(quiet, state=JobState.FAILED))
    assert silent(NOTHING, evolved(quiet, times=attrs.evolve(TIMES, training=5.0)))
    assert silent(NOTHING, attrs.evolve(quiet, samples=[sample(10, metrics={"loss": 1.0})]))

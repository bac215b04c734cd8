"""Learning curves on real jobs."""

from __future__ import annotations

import pytest

from tests.advice.real.jobs import fit, ran, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace
from tony_provider.advice.rules.flat_curve import FlatCurve
from tony_provider.advice.rules.missing_reports import EvaluationMissing, NothingReported

LONG = "--steps 1400 --pace 0.1 --evaluate"  # forty samples, which are seconds apart


@pytest.mark.long
def test_flat_curve(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = FlatCurve()
    jobs = submitted(local, fit(f"{LONG} --rate 0.1"), fit(f"{LONG} --rate 0.0005"))
    flat, learning = map(ran, jobs)
    advice = verdicts.told(rule, "a learning rate that is done with after a part of the steps", flat)
    assert advice.evidence["metric"] == "val_loss"
    assert advice.evidence["flat_from_step"] < 0.6 * 1400
    verdicts.silent(rule, "a learning rate with which it learns to the end", learning)


@pytest.mark.long
def test_evaluation_missing(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = EvaluationMissing(least_seconds=3.0)
    steps = "--steps 60 --pace 0.1"
    beside = fit(steps)
    beside["framework"] = "tensorflow"
    beside["tasks"] = {"chief": beside["tasks"]["worker"], "evaluator": {"command": "sleep 3", "memory": "128MiB"}}
    without, evaluates, scored, evaluated = map(
        ran, submitted(local, fit(steps), fit(f"{steps} --evaluate"), fit(f"{steps} --score"), beside)
    )
    advice = verdicts.told(rule, "it reports loss alone", without)
    assert advice.evidence["metrics"] == ["loss"]
    verdicts.silent(rule, "it reports loss and val_loss", evaluates)
    verdicts.silent(rule, "it scores rows, and trains nothing", scored)
    verdicts.silent(rule, "it reports loss, and has an evaluator", evaluated)


@pytest.mark.long
def test_nothing_reported(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = NothingReported(least_seconds=3.0)
    quiet = {"tasks": {"worker": {"command": "sleep 6", "memory": "128MiB"}}}
    silent, telling = map(ran, submitted(local, quiet, fit("--steps 60 --pace 0.1")))
    verdicts.told(rule, "it reports nothing, and writes no event files", silent)
    verdicts.silent(rule, "it reports steps and loss", telling)

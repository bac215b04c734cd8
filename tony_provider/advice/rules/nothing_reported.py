"""A program of which nobody knows how far it is."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice

_GAIN = 0.005  # it costs nothing; all else comes first


@attrs.frozen
class NothingReported(Rule):
    """No steps, no metrics, no event files where they are looked for: there are no curves, and no forecast."""

    name = "nothing-reported"

    least_seconds: float = 20.0  # of training: less is no program that anybody waits for

    def advise(self, case: Case) -> Advice | None:
        status = case.job.status
        if not case.succeeded or status is None or case.times.training < self.least_seconds:
            return None
        told = any(each.progress is not None for each in status.tasks)
        if told or any(each.step is not None or each.metrics for each in case.job.samples):
            return None
        agreeing = [run for run in case.successes if run.step is None and not run.metrics]
        return self.advice(
            "The program has reported nothing, so its steps and metrics are not known: give it a callback of tony_sdk "
            "(or call tony_sdk.report), append lines of JSON to the file that TONY_METRICS_FILE names, or have it "
            "write TensorBoard's event files into the directory that TONY_TENSORBOARD_DIR names",
            _GAIN,
            confidence(1 + len(agreeing), 1 + len(case.successes)),
            training_seconds=case.times.training,
        )

"""Rule on programs that report no progress."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import Case, Rule, agreement
from tony_provider.cluster.records.summary import Advice

_GAIN = 0.005  # the change saves no resources, so all other advice comes first


@attrs.frozen
class NothingReported(Rule):
    """Recommend progress reports if there are no steps, metrics or event files, and thus no curves or forecast."""

    name = "nothing-reported"

    least_seconds: float = 20.0  # minimum training time; users do not wait for the progress of shorter programs

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None
        told = any(each.progress is not None for each in case.status.tasks)
        if told or any(each.step is not None or each.metrics for each in case.job.samples):
            return None
        return self.advice(
            "The program has reported nothing, so its steps and metrics are not known: give it a callback of tony_sdk "
            "(or call tony_sdk.report), append lines of JSON to the file that TONY_METRICS_FILE names, or have it "
            "write TensorBoard's event files into the directory that TONY_TENSORBOARD_DIR names",
            _GAIN,
            agreement(case.successes, lambda run: run.step is None and not run.metrics),
            training_seconds=case.times.training,
        )

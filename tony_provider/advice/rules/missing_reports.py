"""Rules on programs that report no progress, or no metric of evaluation data."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import INPUT_WAIT, Case, Rule, agreement, gets_lower, is_of_evaluation
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.jobspec.model import Role

_GAIN_OF_EVALUATION = 0.01  # the change saves no resources, so all other advice comes first


@attrs.frozen
class EvaluationMissing(Rule):
    """Recommend an evaluation if the job reports only metrics of its training data."""

    name = "evaluation-missing"

    least_seconds: float = 600.0  # minimum training time; a shorter training counts as a trial

    def advise(self, case: Case) -> Advice | None:
        spec = case.spec
        if not case.succeeded or spec is None or case.times.training < self.least_seconds:
            return None
        reported = {*case.status.metrics, *(name for each in case.job.samples for name in each.metrics)}
        metrics = sorted(reported - {INPUT_WAIT})
        if any(map(is_of_evaluation, metrics)) or Role.EVALUATOR in spec.roles.values():
            return None
        if all(gets_lower(each) is None for each in metrics):
            return None  # no loss and no accuracy: the program may score rows instead of training
        return self.advice(
            f"The job reports only training metrics ({', '.join(metrics[:3])}): report a metric of evaluation data, "
            "such as val_loss, or add an evaluator",
            _GAIN_OF_EVALUATION,
            agreement(case.successes, lambda run: not any(map(is_of_evaluation, run.metrics))),
            metrics=metrics[:20],
        )


_GAIN_OF_REPORTS = 0.005  # the change saves no resources, so all other advice comes first


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
            _GAIN_OF_REPORTS,
            agreement(case.successes, lambda run: run.step is None and not run.metrics),
            training_seconds=case.times.training,
        )

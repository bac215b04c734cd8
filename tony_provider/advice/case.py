"""Base class of the advice rules, and their input: an application's history, and summaries of earlier applications.

Metrics are classified by their names: evaluation or training, and whether lower values are better.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import attrs

from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import Advice, Confidence, JobSummary
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.jobspec.model import TENSORBOARD, JobSpec
from tony_provider.runtime.protocol.status import Failure, FinalStatus, JobState, JobStatus, TimeUse, TypeUse

INPUT_WAIT = "input_wait"  # metric: share of the time (0 to 1) in which the program waited for its input

_EVALUATION = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout"}
_LOWER = {"loss", "error", "err", "rmse", "mse", "mae", "mape", "perplexity", "ppl", "wer", "cer", "logloss", "nll"}
_HIGHER = {"accuracy", "acc", "auc", "f1", "precision", "recall", "bleu", "rouge", "iou", "map", "ndcg", "r2", "score"}


def _words(metric: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", metric.lower()))


def is_of_evaluation(metric: str) -> bool:
    """Return whether the name indicates a metric of evaluation data: ``val_loss``, ``eval/accuracy``, ``auc``."""
    words = _words(metric)
    return bool(words & _EVALUATION) or bool(words & (_HIGHER - {"accuracy", "acc"}) and "train" not in words)


def gets_lower(metric: str) -> bool | None:
    """Return whether lower values are better, judged by the name, or None if the name does not show this."""
    words = _words(metric)
    if words & _LOWER:
        return True
    return False if words & _HIGHER else None


def ranked(metrics: Iterable[str]) -> list[str]:
    """Return all metrics by relevance: first the result of ``telling``, last settings such as the learning rate."""
    names = list(metrics)
    first = telling(names)
    rest = sorted(set(names) - set(first), key=lambda each: (_is_of_its_doing(each), each))
    return [*first, *rest]


def _is_of_its_doing(metric: str) -> bool:
    words = _words(metric)
    return metric == INPUT_WAIT or "lr" in words or {"learning", "rate"} <= words


def telling(metrics: Iterable[str]) -> list[str]:
    """Return the metrics with a known direction of improvement, evaluation metrics first."""
    known = [each for each in metrics if gets_lower(each) is not None]
    return sorted(known, key=lambda each: (not is_of_evaluation(each), not gets_lower(each), each))


T = TypeVar("T")

# Seconds of training after which the measured use is representative. A shorter training may end before the program has
# read all its data, evaluated or saved a checkpoint. In addition, initial reading and compilation dominate its use.
ENOUGH_TRAINING = 300.0
_SEVERAL = 3  # minimum number of agreeing runs for high confidence
_MOST = 0.8  # minimum share of agreeing runs for high confidence


@attrs.frozen
class TypeRuns:
    """Requested and used resources of one task type in this application and in former successful applications."""

    now: TypeUse
    former: Sequence[TypeUse]


@attrs.frozen(slots=False)  # cached properties need a __dict__
class Case:
    """An application, and former applications of the same task of a DAG. Times are in seconds."""

    job: JobHistory
    former: Sequence[JobSummary] = ()  # oldest first; without this application

    @cached_property
    def spec(self) -> JobSpec | None:
        """Return the specification, or None if it was not kept. Raises CodecError if it is invalid."""
        kept = self.job.specification
        return None if kept is None else from_plain(kept.job, JobSpec, ignore_unknown=True)

    @property
    def status(self) -> JobStatus:
        """Return the status, or a status without any figures if it was not kept."""
        return self.job.status or JobStatus(self.job.application_id, "", JobState.WAITING)

    @property
    def succeeded(self) -> bool:
        return self.status.state is JobState.SUCCEEDED

    @property
    def times(self) -> TimeUse:
        """Return the time use of the application, all 0 if it is unknown or damaged."""
        times = self.status.times
        return times if times is not None and _is_sound(times) else TimeUse()

    @property
    def failure(self) -> Failure | None:
        return self.status.failure

    @property
    def restarts(self) -> int:
        return self.status.restarts

    @property
    def successes(self) -> list[JobSummary]:
        """Return former applications that succeeded."""
        return [each for each in self.former if each.verdict is FinalStatus.SUCCEEDED]

    @cached_property
    def types(self) -> list[TypeRuns]:
        """Return the figures of the task types that the specification defines. Skip damaged figures."""
        spec = self.spec
        use = [each for each in self.status.use if each.type != TENSORBOARD and _is_sound(each)]
        known = [_as_asked(each, spec) for each in use if spec is None or each.type in spec.tasks]
        return [TypeRuns(each, [was for run in self.successes for was in _of(run, each.type)]) for each in known]

    def asked_vcores(self, use: TypeUse) -> int:
        """Return the vcores per container that the specification requests.

        The number in ``use`` may differ, because ``use`` may be of a former run.
        """
        spec = self.spec
        return use.vcores if spec is None else spec.tasks[use.type].vcores

    def share_of_time(self, part: Callable[[TimeUse], float], least: float) -> tuple[float, Confidence]:
        """Return the share of the total time that a part took, 0 if it is unknown.

        Also return the confidence. It rises with the number of former applications whose share was at least ``least``.
        """
        return _share(part, self.times), agreement(self.former, lambda run: _share(part, run.times) >= least)

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """Yield events with these names, oldest first. Skip damaged events."""
        for event in self.job.events:
            if isinstance(event, dict) and event.get("event") in names and isinstance(event.get("time_ms"), int):
                yield event

    def nodes(self) -> dict[str, str]:
        """Return the nodes of tasks by task name. Leave out tasks whose node is unknown."""
        return {each.name: each.node for each in self.status.tasks if each.node}


def _as_asked(use: TypeUse, spec: JobSpec | None) -> TypeUse:
    """Return the use with the specified memory: containers may have received more after an out-of-memory kill."""
    return use if spec is None else attrs.evolve(use, memory_bytes=spec.tasks[use.type].memory << 20)


def _of(run: JobSummary, task_type: str) -> list[TypeUse]:
    return [each for each in run.use if each.type == task_type and _is_sound(each)]


def _is_sound(figures: TypeUse | TimeUse) -> bool:
    """Return whether all figures are finite and not negative."""
    values = attrs.astuple(figures)
    return all(math.isfinite(each) and each >= 0 for each in values if isinstance(each, (int, float)))


def _share(part: Callable[[TimeUse], float], times: TimeUse) -> float:
    """Return the share that a part has of the time from submission to end, without suspensions."""
    before = times.waiting + times.localisation + times.start
    total = before + times.training + times.restarts + times.end
    return part(times) / total if total > 0 else 0.0


def confidence(saying: int, of: int) -> Confidence:
    """Return the confidence if ``saying`` of ``of`` applications, including this one, support the advice."""
    if saying >= _SEVERAL and saying >= _MOST * of:
        return Confidence.HIGH
    return Confidence.MEDIUM if saying > 1 and saying >= of / 2 else Confidence.LOW


def agreement(others: Collection[T], agrees: Callable[[T], bool]) -> Confidence:
    """Return the confidence in advice that this application and the agreeing ``others`` support."""
    return confidence(1 + sum(map(agrees, others)), 1 + len(others))


class Rule(ABC):
    """A check for one possible improvement of a job. Rules are pure: they read only the case."""

    name: ClassVar[str]  # also the title of the rule's section in docs/advice.md

    @abstractmethod
    def advise(self, case: Case) -> Advice | None:
        """Return advice, or None if the rule has none, or too little data. May raise if the history is damaged."""

    def advice(
        self,
        text: str,
        gain: float,
        confidence: Confidence = Confidence.LOW,
        change: dict[str, Any] | None = None,
        **evidence: Any,
    ) -> Advice:
        """Build the rule's advice. ``gain`` is the unnecessary share of the job's cost, limited to 0 to 1."""
        return Advice(
            rule=self.name,
            text=text,
            evidence=evidence,
            confidence=confidence,
            change=change or None,
            gain=min(1.0, max(0.0, gain)),
        )

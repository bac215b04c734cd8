"""What rules look at: the history of one application, and the summaries of those before it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import Advice, Confidence, JobSummary
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.jobspec.model import TENSORBOARD, JobSpec
from tony_provider.runtime.protocol.status import FinalStatus, JobState, TimeUse, TypeUse

# Seconds of training from which on what was used tells what is needed: in fewer a program may not have read all its
# data, evaluated or saved once, and reading and compiling at its beginning weigh more than what comes after.
ENOUGH_TRAINING = 300.0
_SEVERAL = 3  # runs that say the same make a rule sure
_MOST = 0.8  # of all that were looked at


@attrs.frozen
class TypeRuns:
    """What one task type asked for and used: in this application, and in former ones that have succeeded."""

    now: TypeUse
    former: Sequence[TypeUse]


@attrs.frozen
class Case:
    """One application, and former ones of the same task of a DAG, for rules to look at. Times are in seconds."""

    job: JobHistory
    former: Sequence[JobSummary] = ()  # oldest first; without this application

    @property
    def spec(self) -> JobSpec | None:
        """The specification; None: it was not kept. Raises CodecError when it cannot be understood."""
        kept = self.job.specification
        return None if kept is None else from_plain(kept.job, JobSpec, ignore_unknown=True)

    @property
    def succeeded(self) -> bool:
        return self.job.status is not None and self.job.status.state is JobState.SUCCEEDED

    @property
    def times(self) -> TimeUse:
        """Where its time went; all 0 where nobody says it, or what is said is damaged."""
        times = self.job.status.times if self.job.status else None
        return times if times is not None and _is_sound(times) else TimeUse()

    @property
    def restarts(self) -> int:
        return self.job.status.restarts if self.job.status else 0

    @property
    def successes(self) -> list[JobSummary]:
        """Former applications that have succeeded."""
        return [each for each in self.former if each.verdict is FinalStatus.SUCCEEDED]

    @property
    def types(self) -> list[TypeRuns]:
        """The task types that the specification has a key for, with their figures. What is damaged is left out."""
        spec = self.spec
        said = self.job.status.use if self.job.status else []
        use = [each for each in said if each.type != TENSORBOARD and _is_sound(each)]
        known = [_as_asked(each, spec) for each in use if spec is None or each.type in spec.tasks]
        return [TypeRuns(each, [was for run in self.successes for was in _of(run, each.type)]) for each in known]

    def asked_vcores(self, use: TypeUse) -> int:
        """Those that the job says, for one container; a run that is judged for the next one may have had others."""
        spec = self.spec
        return use.vcores if spec is None else spec.tasks[use.type].vcores

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """Events of these names, oldest first. What is damaged is left out."""
        for event in self.job.events:
            if isinstance(event, dict) and event.get("event") in names and isinstance(event.get("time_ms"), int):
                yield event

    def nodes(self) -> dict[str, str]:
        """The node of each task, by its name, where it is known."""
        return {each.name: each.node for each in (self.job.status.tasks if self.job.status else []) if each.node}


def _as_asked(use: TypeUse, spec: JobSpec | None) -> TypeUse:
    """With the memory that the job says: after an out-of-memory kill its containers may have got more."""
    return use if spec is None else attrs.evolve(use, memory_bytes=spec.tasks[use.type].memory << 20)


def _of(run: JobSummary, task_type: str) -> list[TypeUse]:
    return [each for each in run.use if each.type == task_type and _is_sound(each)]


def _is_sound(figures: TypeUse | TimeUse) -> bool:
    """Whether these can be figures at all: none is endless, negative, or no number."""
    values = attrs.astuple(figures)
    return all(math.isfinite(each) and each >= 0 for each in values if isinstance(each, (int, float)))


def total(times: TimeUse) -> float:
    """From the submission to the end, in seconds, but for the time that somebody had suspended it."""
    before = times.waiting + times.localisation + times.start
    return before + times.training + times.restarts + times.end


def confidence(saying: int, of: int) -> Confidence:
    """How sure a rule is when so many applications, this one included, say what it says, of all that it looked at."""
    if saying >= _SEVERAL and saying >= _MOST * of:
        return Confidence.HIGH
    return Confidence.MEDIUM if saying > 1 and saying >= of / 2 else Confidence.LOW


class Rule(ABC):
    """One thing that can be better about a job. Pure: it looks at nothing but the case."""

    name: ClassVar[str]  # and that of its section in docs/advice.md

    @abstractmethod
    def advise(self, case: Case) -> Advice | None:
        """What it has to say; None: nothing, or too little is known. May raise for a history that is damaged."""

    def advice(
        self,
        text: str,
        gain: float,
        confidence: Confidence = Confidence.LOW,
        change: dict[str, Any] | None = None,
        **evidence: Any,
    ) -> Advice:
        """Its advice. ``gain`` is what the job cost without need, as a share, and cut to 0 to 1."""
        return Advice(
            rule=self.name,
            text=text,
            evidence=evidence,
            confidence=confidence,
            change=change or None,
            gain=min(1.0, max(0.0, gain)),
        )

"""A piece of advice: what a rule has to say to those who run a job."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import attrs

from tony_provider.cluster.application_state import ApplicationState
from tony_provider.cluster.interface import Application
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.training.identity import Identity, Layout, identity_of, read_record
from tony_provider.runtime.common.bounds import PREVIOUS_RUNS_LIMIT
from tony_provider.runtime.common.codec import CodecError, dump_json, from_plain, to_plain
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.history.samples import TaskSample
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus, TimeUse, TypeUse
from tony_provider.runtime.storage.base import Storage, write_atomically


class Confidence(StrEnum):
    """How sure a rule is."""

    LOW = "low"  # one job, or few samples
    MEDIUM = "medium"
    HIGH = "high"  # several jobs say the same


@attrs.frozen(kw_only=True)
class Advice:
    """What should be changed in a job, why, and the change itself."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    rule: str  # its name, and that of its section in docs/advice.md, such as memory-too-much
    text: str  # one line for people: what to do, and the figures that say so
    evidence: dict[str, Any] = attrs.field(factory=dict)  # figures, by name; bytes and seconds
    confidence: Confidence = Confidence.LOW
    change: dict[str, Any] | None = None  # a merge patch, as ``overrides`` takes it; None: no key would do it
    gain: float = 0.0  # 0 to 1: of what the job cost in resources or time, for the order in which they are shown


CURVE_POINTS = 200  # of a curve, at most
CURVES = 20  # of a summary, at most


@attrs.frozen(kw_only=True)
class Curve:
    """A metric of the leader over its steps. All lists have the same length, at most CURVE_POINTS."""

    metric: str
    steps: list[int]
    seconds: list[float]  # since the submission
    values: list[float | str]  # "NaN", "Infinity" and "-Infinity" for what is no number


@attrs.frozen(kw_only=True)
class JobSummary:
    """What became of an application that one try of a task has waited for, or waits for. JSON types throughout."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    application_dir: str  # URI
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1  # the last that has waited for it
    watched: bool = True  # False: its task does not wait for its end
    run_date: str | None = None  # ISO 8601; None: the run is for a partition without a date
    tony_conn_id: str = "tony_default"
    proxy_user: str | None = None
    user: str = ""  # whom it ran as
    queue: str = ""
    name: str = ""
    framework: str = ""
    verdict: FinalStatus | None = None  # None: it runs, as far as this try knew
    reason: str = ""  # of a failure: one line, with the task that failed first
    failure_kind: str | None = None  # a FailureKind
    failed_task: str | None = None  # such as worker:0
    failed_node: str | None = None
    submitted_ms: int = 0  # epoch; so the next
    finished_ms: int | None = None
    times: TimeUse = attrs.field(factory=TimeUse)
    use: list[TypeUse] = attrs.field(factory=list)
    step: int | None = None
    total_steps: int | None = None
    steps_per_second: float | str | None = None  # "NaN" for no number
    restarts: int = 0
    resumed_step: int | None = None
    checkpoint_step: int | None = None
    metrics: dict[str, float | str] = attrs.field(factory=dict)  # the leader's newest; "NaN" for no number
    curves: list[Curve] = attrs.field(factory=list)  # at most CURVES
    warnings: list[str] = attrs.field(factory=list)
    advice: list[Advice] = attrs.field(factory=list)
    fingerprint: dict[str, str] = attrs.field(factory=dict)  # hashes of what was trained: what differs was changed
    links: dict[str, str] = attrs.field(factory=dict)  # addresses by their names
    version: int = 1  # of this form


LONGEST_NAME = 100  # characters of a metric: one with a longer name is left out
_DIGITS = 7  # of a value


@attrs.frozen
class _Point:
    step: int
    seconds: float
    value: float


def curves(samples: Iterable[TaskSample], submitted_ms: int) -> list[Curve]:
    """The curves of one task's samples, which are in the order in which they were taken.

    Where there are too many metrics, those that were reported most often. Without a step a sample has that of the one
    before.
    """
    points: dict[str, list[_Point]] = {}
    step = 0
    for sample in samples:
        step = sample.step if sample.step is not None else step
        seconds = round((sample.time_ms - submitted_ms) / 1000, 1)
        for name, value in sample.metrics.items():
            if len(name) <= LONGEST_NAME:
                points.setdefault(name, []).append(_Point(step, seconds, value))
    reported = Counter({name: len(found) for name, found in points.items()})
    return [_curve(name, thinned_points(points[name], CURVE_POINTS)) for name, _ in reported.most_common(CURVES)]


def thinned_curve(curve: Curve, points: int) -> Curve:
    """The curve with at most so many points."""
    values = [float(value) for value in curve.values]  # takes "NaN" and "Infinity" too
    found = [_Point(*each) for each in zip(curve.steps, curve.seconds, values, strict=True)]
    return _curve(curve.metric, thinned_points(found, points))


def thinned_points(points: Sequence[_Point], most: int) -> Sequence[_Point]:
    """At most so many of the points: the first, the last, and what is highest, lowest or no number in between.

    Where there are too many, of a stretch of one value only its ends count. ``most``: at least 5.
    """
    if len(points) <= most:
        return points
    points = _without_repeats(points)
    if len(points) <= most:
        return points
    inner = points[1:-1]
    buckets = (most - 2) // 3
    kept = [points[0]]
    for number in range(buckets):
        kept += _extremes(inner[number * len(inner) // buckets : (number + 1) * len(inner) // buckets])
    return [*kept, points[-1]]


def _without_repeats(points: Sequence[_Point]) -> Sequence[_Point]:
    """Without those between two of their own value, such as a ``val_loss`` that is told all through an epoch."""
    inner = zip(points, points[1:], points[2:], strict=False)
    kept = [at for before, at, after in inner if not (_same(before, at) and _same(at, after))]
    return [points[0], *kept, points[-1]]


def _same(one: _Point, other: _Point) -> bool:
    return one.value == other.value or (math.isnan(one.value) and math.isnan(other.value))


def _extremes(points: Sequence[_Point]) -> list[_Point]:
    """The lowest, the highest and the first that is no number, in the order in which they came."""
    numbers = [at for at, point in enumerate(points) if not math.isnan(point.value)]
    chosen = {at for at, point in enumerate(points) if math.isnan(point.value)}
    chosen = {min(chosen)} if chosen else set()
    if numbers:
        chosen |= {min(numbers, key=lambda at: points[at].value), max(numbers, key=lambda at: points[at].value)}
    return [points[at] for at in sorted(chosen)]


def _curve(metric: str, points: Sequence[_Point]) -> Curve:
    return Curve(
        metric=metric,
        steps=[point.step for point in points],
        seconds=[point.seconds for point in points],
        values=[to_plain(_rounded(point.value)) for point in points],
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


MOST_BYTES = 60 << 10  # as JSON in ASCII, both parts: each stays below what Airflow warns of
_METRICS = 50  # of those reported last
_WARNINGS, _HASHES, _TYPES = 10, 200, 20
_LAST_WORDS = 3  # lines of what a program had printed
_LINE = 1000  # bytes, as JSON in ASCII, of a reason or a warning


@attrs.frozen(kw_only=True)
class RunFacts:
    """What Airflow knows of an application: the run, the task and the try that wait for it. Fields as JobSummary's."""

    application_id: str
    application_dir: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1
    watched: bool = True
    run_date: str | None = None
    tony_conn_id: str = "tony_default"
    proxy_user: str | None = None
    name: str = ""
    framework: str = ""
    submitted_ms: int = 0  # as far as the try knows; the cluster knows better
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    links: Mapping[str, str] = attrs.field(factory=dict)


def summarize(
    facts: RunFacts,
    history: JobHistory,
    application: Application | None = None,
    advice: Sequence[Advice] = (),
    *,
    most_bytes: int = MOST_BYTES,
) -> JobSummary:
    """The summary of an application, at most ``most_bytes`` long.

    ``history`` may be as empty as that of a job that never started; ``application``: None when the cluster does not
    know it (any more).
    """
    status = history.status
    job = history.specification.job if history.specification else {}
    submitted_ms = (application and application.started_ms) or (status and status.started_ms) or facts.submitted_ms
    known = attrs.asdict(facts, recurse=False)
    known |= {
        "framework": facts.framework or _text(job.get("framework")),
        "name": facts.name or (application and application.name) or (status and status.name) or "",
        "user": application.user if application else "",
        "queue": application.queue if application else _text(job.get("queue")),
        "verdict": verdict(application, status),
        "reason": reason(application, status),
        "submitted_ms": submitted_ms,
        "finished_ms": (status and status.finished_ms) or (application and application.finished_ms) or None,
        "fingerprint": dict(sorted(facts.fingerprint.items())[:_HASHES]),
        "links": dict(facts.links),
        "advice": list(advice),
        **(_of_status(status) if status else {}),
    }
    leading = [sample for sample in history.samples if status and sample.task == status.leader]
    return _bounded(JobSummary(**known, curves=curves(leading, submitted_ms)), most_bytes)


def verdict(application: Application | None, status: JobStatus | None) -> FinalStatus | None:
    """How the application ended: the job's own result is the truth, the cluster's word counts where there is none."""
    if status is not None and status.state.is_final:
        killed = status.failure is not None and status.failure.kind is FailureKind.KILLED
        return FinalStatus.KILLED if killed and status.state is JobState.FAILED else FinalStatus(status.state.value)
    if application is None or not application.is_final:
        return None
    if application.state is ApplicationState.KILLED:
        return FinalStatus.KILLED
    return application.final_status or FinalStatus.FAILED


def reason(application: Application | None, status: JobStatus | None) -> str:
    """Of a failure: a line, and in a second one the end of what the program had printed, if anything.

    Empty for a success, or while it runs. Who has killed it, only the cluster knows.
    """
    ended = verdict(application, status)
    if ended in (None, FinalStatus.SUCCEEDED):
        return ""
    of_cluster = application.diagnostics if application else ""
    of_job = (
        [status.failure.message if status.failure else "", status.message] if status and status.state.is_final else []
    )
    told = [of_cluster, *of_job] if ended is FinalStatus.KILLED else [*of_job, of_cluster]
    why, _, printed = next((each for each in told if each.strip()), "").strip().partition("\n")
    return "\n".join(line for line in (_line(why), _last_words(printed)) if line)


def _of_status(status: JobStatus) -> dict[str, Any]:
    failure = status.failure
    task = failure.task if failure else None
    node = next((each.node for each in status.tasks if each.name == task), None)
    metrics = {name: value for name, value in status.metrics.items() if len(name) <= LONGEST_NAME}
    return {
        "failure_kind": failure.kind.value if failure else None,
        "failed_task": task,
        "failed_node": node,
        "times": status.times or TimeUse(),
        "use": status.use[:_TYPES],
        "step": status.step,
        "total_steps": status.total_steps,
        "steps_per_second": to_plain(status.steps_per_second),
        "restarts": status.restarts,
        "resumed_step": status.resumed_step,
        "checkpoint_step": status.checkpoint_step,
        "metrics": {name: to_plain(value) for name, value in list(metrics.items())[:_METRICS]},
        "warnings": [_line(each) for each in status.warnings[:_WARNINGS]],
    }


def _bounded(summary: JobSummary, most_bytes: int) -> JobSummary:
    """The first of ever smaller ones that fits; the last one, should none."""
    for smaller in _ever_smaller(summary):
        summary = smaller
        if _length(summary) <= most_bytes:
            break
    return summary


def _ever_smaller(summary: JobSummary) -> Iterator[JobSummary]:
    yield summary
    for points in (100, 50, 25):
        yield attrs.evolve(summary, curves=[thinned_curve(curve, points) for curve in summary.curves])
    short = [thinned_curve(curve, 25) for curve in summary.curves]
    for some in (10, 5, 0):
        yield attrs.evolve(summary, curves=short[:some])
    yield attrs.evolve(
        summary,
        curves=[],
        warnings=[each[:100] for each in summary.warnings[:5]],
        metrics=dict(list(summary.metrics.items())[:10]),
        fingerprint={},
        use=summary.use[:10],
    )


def _length(summary: JobSummary) -> int:
    return len(json.dumps(to_plain(summary)))


def _last_words(printed: str) -> str:
    """The end of what was printed, in one line: of a traceback what stands below its frames."""
    lines = [each.rstrip() for each in printed.splitlines() if each.strip()][-_LAST_WORDS:]
    frames = [at for at, each in enumerate(lines[:-1]) if each[0].isspace()]
    text = "\n".join(lines[frames[-1] + 1 if frames else 0 :])
    return _line(f"…{text[-_LINE // 2 :]}" if len(text) > _LINE // 2 else text)


def _line(text: str) -> str:
    """The text in one line, with nothing that a database or JSON cannot hold."""
    line = " ".join(replaced(text[: 2 * _LINE]).replace("\x00", "?").split())
    while (excess := len(json.dumps(line)) - _LINE) > 0:
        line = f"{line[: -max(2, excess // 6)].rstrip('…')}…"  # a character is 6 bytes at most, or 12 for two
    return line


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# Keys in the state of a task instance; an application's id follows the first two.
JOB_KEY = "tony_job:"
DETAILS_KEY = "tony_job_details:"
JOBS_KEY = "tony_jobs"  # the ids of the applications whose summaries are kept, oldest first
DETAILS = ("curves", "advice", "fingerprint", "links")  # fields of the second part

Plain = dict[str, Any]


def in_parts(summary: JobSummary) -> tuple[Plain, Plain]:
    """The summary as JSON types, in its two parts: what lists need, and the rest."""
    plain = to_plain(summary)
    details = {name: plain.pop(name) for name in DETAILS}
    return plain, details


def plain_of(text: str | None) -> tuple[Plain, list[str]]:
    """The object in a stored text, and what is wrong with it; empty when it is none."""
    if text is None:
        return {}, ["a part of the summary is not there"]
    if not text:  # and so what the database keeps to itself
        return {}, ["the summary is damaged: it is empty, or longer than any of ours"]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [f"the summary is damaged: {error}"]
    if not isinstance(found, dict):
        return {}, ["the summary is damaged: it is no JSON object"]
    if len(found) == 1 and next(iter(found)).startswith("__"):  # Airflow's mark for what a backend keeps elsewhere
        return {}, ["the summary is kept by a backend of Airflow's state store, and not in its database"]
    return found, []


def read_summary(plain: Mapping[str, Any]) -> tuple[JobSummary, list[str]]:
    """The summary in ``plain``, which has the fields without a default in any case, and what could not be read."""
    try:
        return from_plain(plain, JobSummary), []
    except CodecError:
        return _field_by_field(plain)


def _field_by_field(plain: Mapping[str, Any]) -> tuple[JobSummary, list[str]]:
    fields = attrs.fields(JobSummary)
    good = {field.name: plain[field.name] for field in fields if field.default is attrs.NOTHING}
    problems: list[str] = []
    for field in fields:
        if field.name in plain and field.name not in good:
            try:
                from_plain({**good, field.name: plain[field.name]}, JobSummary)
            except CodecError as error:
                problems += error.problems
            else:
                good[field.name] = plain[field.name]
    return from_plain(good, JobSummary), problems


KEPT = 10  # applications


@attrs.frozen(kw_only=True)
class PreviousRuns:
    """What is known of the last applications of one task of a DAG."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    summaries: list[JobSummary] = attrs.field(factory=list)  # oldest first, at most KEPT, without curves
    quiet_runs: int = 0  # that are to succeed with the DAG's own values before advice is applied again
    blamed: str | None = None  # the application that has failed with advice applied, while ``quiet_runs`` lasts
    version: int = 1

    def with_run(self, summary: JobSummary) -> PreviousRuns:
        """With one more; in the place of what was known of the same application."""
        others = [each for each in self.summaries if each.application_id != summary.application_id]
        kept = [*others, attrs.evolve(summary, curves=[])]
        return attrs.evolve(self, summaries=kept[-KEPT:])


def task_identity(namespace: str, labels: Mapping[str, str]) -> Identity | None:
    """Names a task of a DAG, whatever its run, by the labels of an application; None: it is of none."""
    if "dag_id" not in labels or "task_id" not in labels:
        return None
    index = labels.get("map_index", "-1")
    return identity_of(
        namespace=namespace,
        dag_id=labels["dag_id"],
        run_id="",
        task_id=labels["task_id"],
        map_index=int(index) if index.lstrip("-").isdecimal() else -1,
        checkpoint_key=labels.get("checkpoint_key"),
    )


def read_previous_runs(storage: Storage, layout: Layout, task: Identity) -> PreviousRuns:
    """What is kept of a task's former applications. Raises StorageError, RecordUnreadable."""
    without = "advice begins anew with the next application of its task"
    found = read_record(
        storage, layout.former_runs(task), PreviousRuns, without=without, most_bytes=PREVIOUS_RUNS_LIMIT
    )
    return PreviousRuns() if found is None else found


def write_previous_runs(storage: Storage, layout: Layout, task: Identity, runs: PreviousRuns) -> None:
    """Keep it in place of what was there. Raises StorageError."""
    write_atomically(storage, layout.former_runs(task), dump_json(runs))


def tensorboard_command(
    application_ids: Sequence[str], tony_conn_id: str = "tony_default", proxy_user: str | None = None
) -> str:
    """The command line to copy: it draws these applications side by side."""
    words = ["airflow", "tony", "tensorboard", *application_ids]
    if tony_conn_id != "tony_default":
        words += ["--conn-id", tony_conn_id]
    if proxy_user:
        words += ["--proxy-user", proxy_user]
    return shlex.join(words)

"""Summaries of applications, and published models.

A summary has the outcome of an application, curves and advice. Airflow keeps it as JSON in two parts in the state of a
task instance. The store keeps the summaries of a task's previous runs in one file. Both forms are limited in size.

A published model has a ``version.json``. A job writes this file last, so a directory without it is incomplete.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any, ClassVar

import attrs

from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.training.identity import Identity, Layout, labelled_identity, read_record
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.bounds import PREVIOUS_RUNS_LIMIT, RECORD_LIMIT, read_json
from tony_provider.runtime.common.codec import CodecError, dump_json, from_plain, to_plain
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.jobspec.problems import flattened
from tony_provider.runtime.protocol.limits import MOST_PARAMETERS, valid_parameters
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus, TimeUse, TypeUse
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, list_existing, read_whole, write_atomically
from tony_provider.runtime.storage.errors import StorageNotFound


class Confidence(StrEnum):
    """How much data supports a piece of advice."""

    LOW = "low"  # one job, or few samples
    MEDIUM = "medium"
    HIGH = "high"  # several jobs agree


@attrs.frozen(kw_only=True)
class Advice:
    """A recommended change to a job, with the figures that support it."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    rule: str  # name of the rule and of its section in docs/advice.md, such as memory-too-much
    text: str  # one line for users: the recommendation and its figures
    evidence: dict[str, Any] = attrs.field(factory=dict)  # figures by name, in bytes and seconds
    confidence: Confidence = Confidence.LOW
    change: dict[str, Any] | None = None  # recommended merge patch for ``overrides``; None if no key would help
    gain: float = 0.0  # avoidable share of the job's cost in resources or time, 0 to 1; advice is sorted by it


class ParameterSource(StrEnum):
    """Where the value of a parameter comes from. A later source takes precedence."""

    RUN = "run"  # params of the Airflow run
    COMMAND = "command"  # arguments in the command of a task type
    PROGRAM = "program"  # tony_sdk.log_params


CURVE_POINTS = 200  # per curve, at most
CURVES = 20  # per summary, at most


@attrs.frozen(kw_only=True)
class Curve:
    """A metric of the leading task by step. All lists have the same length, at most CURVE_POINTS."""

    metric: str
    steps: list[int]
    seconds: list[float]  # seconds since the submission
    values: list[float | str]  # "NaN", "Infinity" and "-Infinity" for values that are not finite


@attrs.frozen(kw_only=True)
class JobSummary:
    """Outcome or current state of an application that a try of an Airflow task submitted. All values are JSON types."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    application_dir: str  # URI
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1  # number of the newest try that waited for the application
    watched: bool = True  # False if the Airflow task does not wait for the end of the application
    run_date: str | None = None  # ISO 8601; None if the run is for a partition without a date
    tony_conn_id: str = "tony_default"
    proxy_user: str | None = None
    user: str = ""  # the cluster's user that the application ran as
    queue: str = ""
    name: str = ""
    framework: str = ""
    verdict: FinalStatus | None = None  # None if the application was running when this try last checked
    cause: str = ""  # the program's error; users who may not read task logs must not read it either
    reason: str = ""  # reason of a failure, with the task that failed first; see the function ``reason``
    failure_kind: str | None = None  # value of a FailureKind
    failed_task: str | None = None  # such as worker:0
    failed_node: str | None = None
    submitted_ms: int = 0  # epoch milliseconds, like ``finished_ms``
    finished_ms: int | None = None
    times: TimeUse = attrs.field(factory=TimeUse)
    use: list[TypeUse] = attrs.field(factory=list)
    step: int | None = None
    total_steps: int | None = None
    steps_per_second: float | str | None = None  # "NaN" for a value that is not a number
    restarts: int = 0
    resumed_step: int | None = None
    checkpoint_step: int | None = None
    metrics: dict[str, float | str] = attrs.field(factory=dict)  # newest values of the leading task, or "NaN"
    parameters: dict[str, str] = attrs.field(factory=dict)  # at most MOST_PARAMETERS; see ``with_parameters``
    parameter_sources: dict[str, str] = attrs.field(factory=dict)  # the value of a ParameterSource, by name
    model_dir: str | None = None  # URI
    export_dir: str | None = None  # URI of the newest model that was exported during the training
    returned: str | None = None  # returned value as JSON; ends with … if it is longer than a reason
    curves: list[Curve] = attrs.field(factory=list)  # at most CURVES
    warnings: list[str] = attrs.field(factory=list)
    advice: list[Advice] = attrs.field(factory=list)
    fingerprint: dict[str, str] = attrs.field(factory=dict)  # hashes of the inputs of the training
    links: dict[str, str] = attrs.field(factory=dict)  # URLs by name
    version: int = 1  # format version of this record


@attrs.frozen(kw_only=True)
class Refusal:
    """Why a try's job was refused before it was submitted."""

    text: str
    try_number: int
    time_ms: int  # epoch milliseconds


_COMMAND = re.compile(r"tasks\.[^.]+\.command")  # path in a job
_OPTION = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_NO_VALUE = re.compile(r"-[-A-Za-z]|[;<>|&]+$")  # another option, or an operator of the shell


def command_parameters(command: str) -> dict[str, str]:
    """Return the long options in a shell command: ``--lr 0.1``, ``--lr=0.1``, and flags, whose value is ``True``.

    Names have underscores instead of dashes, as in programs. Options with shell variables are left out. Return an empty
    dictionary if a quotation mark is missing.
    """
    try:
        words = shlex.split(re.sub(r"\\\n", " ", command).replace("\n", ";").replace(";", " ; "))
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for word, after in pairwise([*words, ";"]):
        if option := _OPTION.fullmatch(word):
            value = "True" if _NO_VALUE.match(after) else after
            found[option[1].replace("-", "_")] = value if option[2] is None else option[2]
    return {name: value for name, value in found.items() if not {"$", "`"} & set(value)}


def with_parameters(summary: JobSummary, source: ParameterSource, found: Mapping[str, object]) -> JobSummary:
    """Return the summary with further parameters, which replace those of the same names.

    Invalid and excess parameters are left out; see ``valid_parameters``.
    """
    fresh = valid_parameters(found)
    values = dict(islice({**fresh, **summary.parameters, **fresh}.items(), MOST_PARAMETERS))
    sources = summary.parameter_sources | dict.fromkeys(fresh, source)
    return attrs.evolve(summary, parameters=values, parameter_sources={name: sources[name] for name in values})


LONGEST_NAME = 100  # characters; metrics with longer names are dropped
_DIGITS = 7  # significant digits of a value


@attrs.frozen
class _Point:
    step: int
    seconds: float
    value: float


def curves(samples: Iterable[TaskSample], submitted_ms: int) -> list[Curve]:
    """Return the curves of one task from its samples, which must be in the order in which they were taken.

    If there are more than CURVES metrics, return those that were reported most often. A sample without a step gets the
    step of the sample before it.
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
    """Return the curve with at most ``points`` points."""
    values = [float(value) for value in curve.values]  # float() also accepts "NaN" and "Infinity"
    found = [_Point(*each) for each in zip(curve.steps, curve.seconds, values, strict=True)]
    return _curve(curve.metric, thinned_points(found, points))


def thinned_points(points: Sequence[_Point], most: int) -> Sequence[_Point]:
    """Return at most ``most`` points, which must be at least 5.

    If there are too many points, first drop the inner points of each sequence of equal values. If that is not enough,
    divide the curve into sections. Keep the first and the last point of the curve, and of each section the highest
    value, the lowest value and the first NaN.
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
    """Drop points between two equal values, such as a ``val_loss`` that is reported at each step of an epoch."""
    inner = zip(points, points[1:], points[2:], strict=False)
    kept = [at for before, at, after in inner if not (_same(before, at) and _same(at, after))]
    return [points[0], *kept, points[-1]]


def _same(one: _Point, other: _Point) -> bool:
    return one.value == other.value or (math.isnan(one.value) and math.isnan(other.value))


def _extremes(points: Sequence[_Point]) -> list[_Point]:
    """Return the lowest value, the highest value and the first NaN, in their original order."""
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
        values=[to_plain(float(f"{point.value:.{_DIGITS}g}")) for point in points],
    )


MOST_BYTES = 60 << 10  # limit of a summary as ASCII JSON, so that Airflow does not warn about the size of its parts
_METRICS = 50  # newest metrics in a summary, at most
_WARNINGS, _HASHES, _TYPES = 10, 200, 20
_LAST_WORDS = 3  # lines from the end of the program's output
_LINE = 1000  # bytes of a reason or a warning as ASCII JSON


def summarize(
    begun: JobSummary,
    history: JobHistory,
    application: Application | None = None,
    advice: Sequence[Advice] = (),
    *,
    most_bytes: int = MOST_BYTES,
) -> JobSummary:
    """Return ``begun`` completed from the cluster's report and the job's history, in at most ``most_bytes`` bytes.

    ``begun`` has Airflow's data: the run, the task and the try that wait for the application. The submission time in
    ``begun`` is by the worker's clock, so the cluster's time replaces it if available. ``history`` is empty for a job
    that never started. ``application`` is None if the cluster does not know the application (any more).
    """
    status = history.status
    job = history.specification.job if history.specification else {}
    submitted_ms = (application and application.started_ms) or (status and status.started_ms) or begun.submitted_ms
    leading = [sample for sample in history.samples if status and sample.task == status.leader]
    known = {
        "framework": begun.framework or _text(job.get("framework")),
        "name": begun.name or (application and application.name) or (status and status.name) or "",
        "user": application.user if application else "",
        "queue": application.queue if application else _text(job.get("queue")),
        "verdict": verdict(application, status),
        "reason": reason(application, status),
        "submitted_ms": submitted_ms,
        "finished_ms": (status and status.finished_ms) or (application and application.finished_ms) or None,
        "fingerprint": dict(sorted(begun.fingerprint.items())[:_HASHES]),
        "advice": list(advice),
        "curves": curves(leading, submitted_ms),
        "returned": None if history.returned is None else _line(json.dumps(history.returned)),
        **(figures_of_status(status) if status else {}),
    }
    found = attrs.evolve(begun, **known)
    for path, value in reversed(flattened(job).items()):  # the first task type takes precedence
        if _COMMAND.fullmatch(path):
            found = with_parameters(found, ParameterSource.COMMAND, command_parameters(_text(value)))
    found = with_parameters(found, ParameterSource.PROGRAM, status.parameters if status else {})
    return _bounded(found, most_bytes)


def verdict(application: Application | None, status: JobStatus | None) -> FinalStatus | None:
    """Return how the application ended, or None if it has not ended. The job's result overrides the cluster's state."""
    if status is not None and status.state.is_final:
        killed = status.failure is not None and status.failure.kind is FailureKind.KILLED
        return FinalStatus.KILLED if killed and status.state is JobState.FAILED else FinalStatus(status.state.value)
    if application is None or not application.is_final:
        return None
    if application.state is ApplicationState.KILLED:
        return FinalStatus.KILLED
    return application.final_status or FinalStatus.FAILED


def reason(application: Application | None, status: JobStatus | None) -> str:
    """Return one line on a failure and, if available, a second line with the end of the program's output.

    Return "" for a success or a running application. For a killed application the cluster's diagnostics come first,
    because only the cluster knows who killed it.
    """
    ended = verdict(application, status)
    if ended in (None, FinalStatus.SUCCEEDED):
        return ""
    of_cluster = application.diagnostics if application else ""
    of_job = (
        [status.failure.message if status.failure else "", status.message] if status and status.state.is_final else []
    )
    messages = [of_cluster, *of_job] if ended is FinalStatus.KILLED else [*of_job, of_cluster]
    return _with_last_words(next((each for each in messages if each.strip()), ""))


def _with_last_words(message: str) -> str:
    """Return a message's first line, and the end of the program's output in the message as a second line."""
    why, _, printed = message.strip().partition("\n")
    return "\n".join(line for line in (_line(why), _last_words(printed)) if line)


def figures_of_status(status: JobStatus) -> dict[str, Any]:
    """Return the fields of a summary that a status knows."""
    failure = status.failure
    task = failure.task if failure else None
    node = next((each.node for each in status.tasks if each.name == task), None)
    metrics = {name: value for name, value in status.metrics.items() if len(name) <= LONGEST_NAME}
    return {
        "cause": _line(failure.cause) if failure else "",
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
        "model_dir": status.model_dir,
        "export_dir": status.export.uri if status.export else None,
        "warnings": [_with_last_words(each) for each in status.warnings[:_WARNINGS]],
    }


def _bounded(summary: JobSummary, most_bytes: int) -> JobSummary:
    """Return the summary, with curves and other details dropped step by step until it fits ``most_bytes``."""
    for smaller in _ever_smaller(summary):
        if len(json.dumps(to_plain(smaller))) <= most_bytes:
            break
    return smaller


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
        parameters=dict(list(summary.parameters.items())[:10]),
        parameter_sources={},
        fingerprint={},
        use=summary.use[:10],
    )


def _last_words(printed: str) -> str:
    """Return the end of the output on one line. If it ends with a traceback, return only the part below the frames."""
    lines = [each.rstrip() for each in printed.splitlines() if each.strip()][-_LAST_WORDS:]
    frames = [at for at, each in enumerate(lines[:-1]) if each[0].isspace()]
    text = "\n".join(lines[frames[-1] + 1 if frames else 0 :])
    return _line(f"…{text[-_LINE // 2 :]}" if len(text) > _LINE // 2 else text)


def _line(text: str) -> str:
    """Join the text into one line, and replace characters that a database or JSON cannot store."""
    line = " ".join(replaced(text[: 2 * _LINE]).replace("\x00", "?").split())
    while (excess := len(json.dumps(line)) - _LINE) > 0:
        line = f"{line[: -max(2, excess // 6)].rstrip('…')}…"  # up to 6 bytes per character, rarely 12
    return line


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# Keys in Airflow's state of a task instance. An application id is appended to JOB_KEY and to DETAILS_KEY.
JOB_KEY = "tony_job:"
DETAILS_KEY = "tony_job_details:"
REFUSAL_KEY = "tony_refusal"  # a Refusal; deleted when a later try submits its job
JOBS_KEY = "tony_jobs"  # ids of the applications with a kept summary, oldest first
_RESULTS = ("parameter_sources", "model_dir", "export_dir", "returned")
DETAILS = ("curves", "advice", "fingerprint", "links", *_RESULTS)  # fields under DETAILS_KEY; JOB_KEY has all others

Plain = dict[str, Any]


def in_parts(summary: JobSummary) -> tuple[Plain, Plain]:
    """Return the summary as JSON types in two parts: the fields that lists of jobs show, and the DETAILS."""
    plain = to_plain(summary)
    details = {name: plain.pop(name) for name in DETAILS}
    return plain, details


def plain_of(text: str | None) -> tuple[Plain, list[str]]:
    """Return the JSON object in a stored text, and its problems. The object is empty if the text is not valid."""
    if text is None:
        return {}, ["a part of the summary is missing"]
    if not text:  # the portal's query returns an empty text for a value that is too long
        return {}, ["the summary is damaged: it is empty, or exceeds the size limit"]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [f"the summary is damaged: {error}"]
    if not isinstance(found, dict):
        return {}, ["the summary is damaged: it is not a JSON object"]
    if len(found) == 1 and next(iter(found)).startswith("__"):  # Airflow's reference to a value in a custom backend
        return {}, ["the summary is in a custom backend of Airflow's state store, not in Airflow's database"]
    return found, []


def read_summary(plain: Mapping[str, Any]) -> tuple[JobSummary, list[str]]:
    """Return the summary in ``plain`` without its unreadable fields, and the problems of these fields.

    ``plain`` must have all required fields.
    """
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


KEPT = 10  # number of kept summaries for each task of a DAG


@attrs.frozen(kw_only=True)
class PreviousRuns:
    """The latest applications of one task of a DAG, as kept on the store."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    summaries: list[JobSummary] = attrs.field(factory=list)  # oldest first, at most KEPT, without curves
    quiet_runs: int = 0  # number of further successes without advice before advice is applied again
    blamed: str | None = None  # application that failed with advice applied; reset when ``quiet_runs`` reaches 0
    version: int = 1

    def with_run(self, summary: JobSummary) -> PreviousRuns:
        """Return a copy with this summary added. It replaces an older summary of the same application."""
        others = [each for each in self.summaries if each.application_id != summary.application_id]
        kept = [*others, attrs.evolve(summary, curves=[])]
        return attrs.evolve(self, summaries=kept[-KEPT:])


def task_identity(namespace: str, labels: Mapping[str, str]) -> Identity | None:
    """Return the identity that a task has in all runs of its DAG, from an application's labels.

    Return None if the application does not belong to a task.
    """
    return labelled_identity(namespace, {**labels, "run_id": ""})


def read_previous_runs(storage: Storage, layout: Layout, task: Identity) -> PreviousRuns:
    """Return the kept record of a task's previous applications. Raises StorageError, RecordUnreadable."""
    without = "advice for its task starts without previous runs"
    found = read_record(
        storage, layout.former_runs(task), PreviousRuns, without=without, most_bytes=PREVIOUS_RUNS_LIMIT
    )
    return PreviousRuns() if found is None else found


def write_previous_runs(storage: Storage, layout: Layout, task: Identity, runs: PreviousRuns) -> None:
    """Replace the record of the task's previous runs on the store. Raises StorageError."""
    write_atomically(storage, layout.former_runs(task), dump_json(runs))


def tony_command(*words: str, tony_conn_id: str = "tony_default", proxy_user: str | None = None) -> str:
    """Return a command line of ``airflow tony`` for users to copy, with these words and the options of a connection."""
    line = ["airflow", "tony", *words]
    if tony_conn_id != "tony_default":
        line += ["--conn-id", tony_conn_id]
    if proxy_user:
        line += ["--proxy-user", proxy_user]
    return shlex.join(line)


VERSIONS_DIR = "versions"
VERSION_FILE = "version.json"  # holds at least ``model_dir`` and ``period_end``

_SHOWN = 300  # characters of a version.json that an error shows


@attrs.frozen
class Version:
    """A published model. Its VERSION_FILE exists only if the model is complete."""

    model_dir: str  # URI
    period_end: datetime  # end of the period that the model was trained on
    number: str  # name of its directory


def newest_model_before(storage: Storage, models: str, end: datetime | str) -> str:
    """Return the URI of the existing model with the newest period that ended before ``end``, or "" if there is none.

    Raises StorageError. Raises ValueError if a version.json is invalid or names a model on another store, or if a date
    is not ISO 8601.
    """
    moment = _moment(end)
    earlier = (version for version in published_versions(storage, models) if version.period_end < moment)
    newest_first = sorted(earlier, key=_age, reverse=True)
    return next((each.model_dir for each in newest_first if storage.exists(each.model_dir)), "")


def models_directory(root: str, models: str) -> str:
    """Return the URI of the published models: ``models`` itself, or a path below ``root``, the staging directory."""
    return models if "://" in models else uris.join(root, models)


def published_versions(storage: Storage, models: str) -> Iterator[Version]:
    """Yield the published versions. Raises StorageError, and ValueError if a version.json is invalid."""
    for directory in list_existing(storage, uris.join(models, VERSIONS_DIR)):
        file = uris.join(directory.path, VERSION_FILE)
        try:
            data = read_whole(storage, file, RECORD_LIMIT)
        except StorageNotFound:
            continue  # the job has not yet published this model
        try:
            about = read_json(data)
            version = Version(about["model_dir"], _moment(about["period_end"]), directory.name)
            # Jobs may write this file, and a template may use the model as an entry of `files`. Require a URI here,
            # because a path without a scheme in `files` names a file of the worker.
            is_of_store = "://" in version.model_dir and uris.scheme(version.model_dir) == uris.scheme(models)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} must contain model_dir and period_end: {error!r}") from error
        if not is_of_store:
            raise ValueError(
                f"{file}: model_dir: {version.model_dir[:_SHOWN]!a} is not a URI of the store that the models are "
                f"published on ({uris.scheme(models)}://…)"
            )
        yield version


def _moment(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _age(version: Version) -> tuple[datetime, int, str]:
    """Return a sort key. If two versions have the same period, the higher number is newer: 10 after 9."""
    is_number = version.number.isdecimal() and len(version.number) < 20
    return version.period_end, int(version.number) if is_number else -1, version.number

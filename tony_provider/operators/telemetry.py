"""Report a try to Airflow's metrics, to the trace of its task, and to MLflow.

``report_stats`` sends timers and counters through the backend of ``[metrics]``. ``report_trace`` adds spans of the job
with OpenTelemetry. ``Telemetry`` combines all reports of a try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import Stats
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.compat import TaskDeferred
from tony_provider.exceptions import TonyTaskKilled
from tony_provider.hooks.mlflow_server import MlflowServer, OpenMlflowRun
from tony_provider.operators.mlflow_run import MlflowOptions, MlflowRun, known_run
from tony_provider.operators.try_state import EndedTry, StateStore, TaskInstanceInfo
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.watching.job_watch import WatchResult

if TYPE_CHECKING:
    from tony_provider.cluster.records.history import JobHistory
    from tony_provider.cluster.records.summary import JobSummary
    from tony_provider.cluster.training.identity import Identity
    from tony_provider.hooks.job import TonyJob
    from tony_provider.operators.tony import TonyTrainOperator


def report_stats(ended: EndedTry) -> None:
    """Send the known times and counts of a try to Airflow's metrics. Has no effect without ``[metrics]``."""
    tags = {"dag_id": ended.run.dag_id, "task_id": ended.run.task_id, "queue": ended.queue}
    timers = {"waiting": ended.waiting_seconds, "training": ended.training_seconds, "total": ended.total_seconds}
    for name, seconds in timers.items():
        if seconds is not None:
            Stats.timing(f"tony.job.{name}", timedelta(seconds=seconds), tags=tags)
    kind = {"kind": ended.kind} if ended.kind else {}
    Stats.incr(f"tony.job.{ended.verdict.value.lower()}", tags={**tags, **kind})
    if ended.status is not None and ended.status.restarts:
        Stats.incr("tony.job.restarts", count=ended.status.restarts, tags=tags)


MAX_SPANS = 500  # maximum spans of one application; the oldest checkpoints are left out

Events = Sequence[Mapping[str, Any]]
_CONTAINERS_THERE = ("gang_complete", "first_container")
_GENERATION_OVER = ("stopping", "verdict")
_SUSPENDED = "suspended"  # the event, and the span that starts with it
_GANG = "gang"  # key in the event of a restart, if it restarts all tasks


@attrs.frozen
class JobSpan:
    """A span of a job. If the clock has jumped, it may end before its start."""

    name: str
    start_ms: int  # epoch milliseconds, like end_ms
    end_ms: int
    attributes: dict[str, str | int] = attrs.field(factory=dict)


def job_spans(events: Events, started_ms: int, finished_ms: int) -> list[JobSpan]:
    """Return the spans of a job between submission and end, in order, as far as its events show them.

    First come ``waiting`` for containers, and ``localisation`` until all executors have registered. Then follow each
    ``generation``, each ``restart`` between two generations, and the time ``suspended`` with the ``waiting`` after it.
    The copy of each ``checkpoint`` and the ``end`` are spans as well.
    """
    known = [event for event in events if isinstance(event.get("time_ms"), int)]
    main = [*_beginning(known, started_ms, finished_ms), *_generations(known, finished_ms), *_end(known, finished_ms)]
    checkpoints = list(_checkpoints(known))
    left_out = max(0, len(main) + len(checkpoints) - MAX_SPANS)
    return sorted([*main[:MAX_SPANS], *checkpoints[left_out:]], key=lambda each: each.start_ms)


def _first(events: Events, *names: str) -> int | None:
    return next((event["time_ms"] for event in events if event.get("event") in names), None)


def _beginning(events: Events, started_ms: int, finished_ms: int) -> Iterator[JobSpan]:
    there, together = _first(events, *_CONTAINERS_THERE), _first(events, "rendezvous")
    yield JobSpan("waiting", started_ms, next(at for at in (there, together, finished_ms) if at is not None))
    if there is not None:
        yield JobSpan("localisation", there, finished_ms if together is None else together)


def _generations(events: Events, finished_ms: int) -> Iterator[JobSpan]:
    """Yield a span for each generation until the gang stops, and for the restart or suspension that follows."""
    number = 0
    now: tuple[str, int] | None = None  # current span name and its start
    for event in [*events, {"event": _GENERATION_OVER[-1], "time_ms": finished_ms}]:
        following, doing = _following(event), now[0] if now is not None else None
        if following is None or (following == doing != "generation"):
            continue
        if following == "waiting" and doing != _SUSPENDED:
            continue  # only a request after a suspension starts a ``waiting`` span here
        if now is not None:
            yield JobSpan(now[0], now[1], event["time_ms"], {"tony.generation": number})
        if following == "generation":
            told = _data(event).get("generation")
            number = told if isinstance(told, int) else number + 1
        goes_on = following == "generation" or (following and now is not None)
        now = (following, event["time_ms"]) if goes_on else None


def _following(event: Mapping[str, Any]) -> str | None:
    """Return the gang's activity after this event: "" if it has none, or None if the event is unrelated."""
    name = event.get("event")
    if name == "rendezvous":
        return "generation"
    if name == _SUSPENDED:
        return _SUSPENDED
    if name == "requested":
        return "waiting"
    if name == "restarting" and _GANG in _data(event, "restarting"):
        return "restart"
    return "" if name in _GENERATION_OVER else None


def _data(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = event
    for key in ("data", *path):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _checkpoints(events: Events) -> Iterator[JobSpan]:
    """Yield a span for each checkpoint, from the program's save until the commit to the store."""
    for event in events:
        if event.get("event") == "checkpoint":
            point, end = _data(event, "checkpoint"), event["time_ms"]
            saved = point.get("saved_ms")
            known = {f"tony.{key}": point.get(key) for key in ("step", "uri")}
            attributes = {key: value for key, value in known.items() if isinstance(value, (int, str))}
            yield JobSpan("checkpoint", saved if isinstance(saved, int) and 0 < saved <= end else end, end, attributes)


def _end(events: Events, finished_ms: int) -> Iterator[JobSpan]:
    verdict = _first(events, "verdict")
    if verdict is not None:
        yield JobSpan("end", verdict, finished_ms)


_NS = 1_000_000  # nanoseconds in a millisecond


def trace_environment() -> dict[str, str]:
    """Return variables with this task's trace for user processes, or an empty dictionary if no span is recorded."""
    if not trace.get_current_span().is_recording():
        return {}
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}  # OpenTelemetry's names of environment variables


def report_trace(ended: EndedTry, events: Callable[[], Events]) -> None:
    """Add the spans of an application to the trace of this task, if the task's span is recorded.

    ``events`` returns the application's events, and may raise.
    """
    started, finished = ended.started_ms, ended.finished_ms
    if not trace.get_current_span().is_recording() or started is None:
        return
    told = events()
    if finished is None:  # the try ended while the application was still running or ending
        finished = max([started, *(time_ms for event in told if isinstance(time_ms := event.get("time_ms"), int))])
    tracer = trace.get_tracer("tony_provider")
    span = tracer.start_span("tony.training", start_time=started * _NS, attributes=_attributes(ended))
    below = trace.set_span_in_context(span)
    for stretch in job_spans(told, started, finished):
        child = tracer.start_span(
            f"tony.{stretch.name}", below, attributes=stretch.attributes, start_time=stretch.start_ms * _NS
        )
        child.end(max(stretch.start_ms, stretch.end_ms) * _NS)
    if ended.verdict is not FinalStatus.SUCCEEDED:
        span.set_status(trace.StatusCode.ERROR, ended.reason)
    span.end(max(started, finished) * _NS)


def _attributes(ended: EndedTry) -> dict[str, str | int]:
    found: dict[str, str | int | None] = {
        "tony.application_id": ended.application_id,
        "tony.try_number": ended.run.try_number,
        "tony.verdict": ended.verdict.value,
        "tony.failure_kind": ended.kind or None,
        "tony.queue": ended.queue or None,
    }
    if ended.status is not None:
        found |= {
            "tony.generation": ended.status.generation,
            "tony.restarts": ended.status.restarts,
            "tony.step": ended.status.step,
            "tony.resumed_step": ended.status.resumed_step,
        }
    return {name: value for name, value in found.items() if value is not None}


@attrs.define
class Telemetry:
    """Reports a try to other systems. Failures of a report do not affect the training.

    Only an invalid argument ``mlflow`` fails the task, before any application starts.
    """

    task: TonyTrainOperator
    run: TaskInstanceInfo
    identity: Callable[[], Identity]  # returns the training's identity; may raise the hook's exceptions
    store: StateStore
    summary: JobSummary | None = None  # the application's summary, with the curves to report; None if there is none
    history: JobHistory | None = None  # the application's records; None if they were not read yet
    ended: WatchResult | None = None  # the end of the watch, with the application's last state; None before it
    _open: OpenMlflowRun | None = None  # MLflow's run; None until MLflow was notified of the start

    def completed(self, request: SubmissionRequest) -> SubmissionRequest:
        """Return the request with the environment variables and credentials for reports. Raises TonySpecError."""
        environment, credentials = trace_environment(), {}
        run = self._mlflow_run()
        if run is not None:
            with self._bearing("Cannot start MLflow's run of this training"):
                environment |= run.begin(request.job, request.secrets)
                self._open = OpenMlflowRun(run.options.conn_id, environment["MLFLOW_RUN_ID"], run.training)
                credentials = dict(run.server.credentials)
        return attrs.evolve(
            request,
            environment={**request.environment, **environment},
            secrets={**credentials, **request.secrets},
        )

    @property
    def open_run(self) -> OpenMlflowRun | None:
        """The MLflow run to close if a user's action ends the task. None if no run is known."""
        with self._bearing("MLflow's run will stay open if a user ends this task"):
            options = MlflowOptions.of(self.task.mlflow)
            if self._open is None and options is not None:
                return known_run(options, self.store, self.identity().name)
        return self._open

    @property
    def secrets(self) -> list[str]:
        """MLflow credentials that the job's programs receive. Reading this property makes Airflow mask them in logs."""
        with self._bearing("MLflow's password is not masked in the job's output"):
            options = MlflowOptions.of(self.task.mlflow)
            if options is not None:
                return MlflowServer.of_connection(options.conn_id).secrets
        return []

    def close_mlflow_run_in_background(self, application_id: str, reason: str) -> None:
        """Close the MLflow run in another thread now, because Airflow may end this process before the job ends."""
        with self._bearing("MLflow's run stays open"):
            if (run := self.open_run) is not None:
                run.close_later(application_id, reason)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Context manager around each process's part of a try. It reports the end of the try, unless the task defers.

        If no application was submitted, only an MLflow run that was already started receives a report. If the
        application continues, there is no report.
        """
        try:
            yield
        except TaskDeferred:
            raise
        except BaseException as error:
            self._tell(error)
            raise
        self._tell(None)

    def _tell(self, error: BaseException | None) -> None:
        job, seen = self.task.switch.job, self.ended
        application_id = job.application_id if job is not None else ""
        goes_on = isinstance(error, TonyTaskKilled) and self.task.on_kill_action == "keep"
        if goes_on or (error is None and seen is None) or not (application_id or self._open):
            return
        ended = EndedTry(
            run=self.run,
            application_id=application_id,
            error=error,
            application=seen.application if seen else None,
            status=seen.status if seen else None,
            summary=self.summary,
        )
        with self._bearing("Airflow's metrics did not receive the result of this try"):
            report_stats(ended)
        with self._bearing("The trace of this task lacks the training's spans"):
            report_trace(ended, lambda: self._history(job).events if job is not None else [])
        with self._bearing("MLflow did not receive the result of this try"):
            run = self._mlflow_run()
            if run is not None:
                self.task.log.info("MLflow's run: %s, on %s", run.end(ended), run.server.uri)

    def _history(self, job: TonyJob) -> JobHistory:
        known = self.history
        return known if known is not None and known.application_id == job.application_id else job.history()

    def _mlflow_run(self) -> MlflowRun | None:
        """Return the MLflow run, or None if the task has no argument ``mlflow``. Raises TonySpecError."""
        options = MlflowOptions.of(self.task.mlflow)
        if options is None:
            return None
        server = MlflowServer.of_connection(options.conn_id)
        return MlflowRun(options, server, self.identity().name, self.run, self.store)

    @contextmanager
    def _bearing(self, without: str) -> Iterator[None]:
        """Log any exception of other systems, such as statsd clients, exporters, and MLflow with its servers."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.task.log.warning("%s: %s: %s", without, type(error).__name__, error)

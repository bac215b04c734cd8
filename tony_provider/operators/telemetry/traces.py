"""A training in Airflow's own trace, where that is on: spans of the job below that of its task.

The operator makes them when the try ends, of what the job has noted: so a try that was deferred, and whose processes
on the cluster know nothing of OpenTelemetry, is whole. Programs that trace themselves join by ``TRACEPARENT``.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tony_provider.operators.telemetry.course import Events, course
from tony_provider.operators.telemetry.ended_try import EndedTry
from tony_provider.runtime.protocol.status import FinalStatus

_NS = 1_000_000  # of a millisecond


def trace_environment() -> dict[str, str]:
    """Variables by which a user process finds the trace of this task; empty where the task's span is not recorded."""
    if not trace.get_current_span().is_recording():
        return {}
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}  # as OpenTelemetry names them in environments


def tell_trace(ended: EndedTry, events: Callable[[], Events]) -> None:
    """Add the spans of an application to the trace of this task; nothing where the task's span is not recorded.

    ``events`` gives the application's, and may raise.
    """
    started, finished = ended.started_ms, ended.finished_ms
    if not trace.get_current_span().is_recording() or started is None:
        return
    told = events()
    if finished is None:  # it was left while it ran, or while it was being ended
        finished = max([started, *(time_ms for event in told if isinstance(time_ms := event.get("time_ms"), int))])
    tracer = trace.get_tracer("tony_provider")
    span = tracer.start_span("tony.training", start_time=started * _NS, attributes=_attributes(ended))
    below = trace.set_span_in_context(span)
    for stretch in course(told, started, finished):
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

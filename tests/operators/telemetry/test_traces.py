"""A training in the trace of its task, as an exporter gets it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.operators.telemetry.test_course import RESTARTED
from tests.operators.telemetry.tries import START, ended
from tony_provider.exceptions import TonyJobFailed
from tony_provider.operators.telemetry import report_trace, trace_environment


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """Since the job's submission."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9 - START / 1000, span.end_time / 1e9 - START / 1000


def test_spans_have_the_times_of_the_job_and_hang_below_the_task(spans: InMemorySpanExporter) -> None:
    events: list[dict[str, Any]] = [{**event, "time_ms": START + (event["time_ms"] - 50) * 100} for event in RESTARTED]
    with trace.get_tracer("airflow").start_as_current_span("worker.train") as task:
        report_trace(ended(), lambda: events)
    found = by_name(spans)
    training, waiting = found["tony.training"], found["tony.waiting"]
    assert seconds(training) == pytest.approx((0, 100), abs=1e-3)
    assert seconds(waiting) == pytest.approx((0, 15), abs=1e-3)
    assert seconds(found["tony.restart"]) == pytest.approx((35, 40), abs=1e-3)
    assert training.parent is not None
    assert waiting.parent is not None
    assert training.context is not None
    assert training.parent.span_id == task.get_span_context().span_id
    assert waiting.parent.span_id == training.context.span_id
    assert {span.context and span.context.trace_id for span in found.values()} == {task.get_span_context().trace_id}
    told = dict(training.attributes or {})
    assert (told["tony.verdict"], told["tony.queue"], told["tony.restarts"], told["tony.step"]) == (
        "SUCCEEDED",
        "ml",
        2,
        40,
    )
    assert training.status.status_code is trace.StatusCode.UNSET


def test_a_failure_is_an_error_with_its_first_line(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("airflow").start_as_current_span("worker.train"):
        report_trace(ended(TonyJobFailed("worker:1 failed\nits last words", application_id="")), list)
    status = by_name(spans)["tony.training"].status
    assert (status.status_code, status.description) == (trace.StatusCode.ERROR, "worker:1 failed")


def test_programs_are_handed_the_span_of_the_task(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("airflow").start_as_current_span("worker.train") as task:
        context, told = task.get_span_context(), trace_environment()
    assert told.keys() == {"TRACEPARENT"}
    assert told["TRACEPARENT"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")


def test_without_tracing_nothing_is_read_and_nothing_handed_over() -> None:
    def events() -> list[dict[str, Any]]:
        raise AssertionError("read")

    report_trace(ended(), events)
    assert trace_environment() == {}

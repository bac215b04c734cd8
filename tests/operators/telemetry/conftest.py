from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.operators.telemetry.fake_mlflow import Server, install

CONNECTION = '{"conn_type": "http", "host": "http://mlflow.example.com", "port": 5000, "password": "a-token"}'


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Tracing is on, as ``[traces] otel_on`` has it, and the spans that have ended are kept here."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A stand-in for MLflow and its server, at the connection ``mlflow_default``, with a token."""
    server = Server()
    install(server, monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_MLFLOW_DEFAULT", CONNECTION)
    return server

"""The table of task metrics, and the aggregation of their values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.metrics import (
    CPU,
    IN_STATUS,
    IN_TASK_TABLES,
    MEMORY,
    METRICS,
    NO_COUNTS,
    SHOWN,
    Metric,
    MetricFold,
    present_use,
)

BY_NAME = {metric.name: metric for metric in METRICS}
HISTORY = Path(__file__).parents[3] / "docs" / "troubleshooting" / "job-history.md"


def test_each_metric_is_a_field_of_heartbeats_and_is_documented() -> None:
    assert set(BY_NAME) <= {field.name for field in tony_pb2.Heartbeat.DESCRIPTOR.fields}
    first_cells = re.findall(r"^\| (`.*?) \|", HISTORY.read_text(), re.MULTILINE)
    documented = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert {metric.name for metric in SHOWN} <= documented


def test_what_reads_the_status_finds_the_metric_there() -> None:
    assert {metric.name for metric in IN_STATUS} == {"rss_bytes", "cpu_percent"}
    assert set(IN_TASK_TABLES) | {metric for metric in METRICS if metric.prometheus} <= set(IN_STATUS)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (MEMORY, 3 << 30, "3 GiB"),
        (MEMORY, 0, ""),
        (CPU, 0.0, "0 %"),
        (CPU, 151.2, "151 %"),
        (BY_NAME["read_bytes"], 100.0, "100 B/s"),
        (BY_NAME["gpu_bytes"], 0, "0 B"),
        (BY_NAME["gpu_bytes"], None, ""),
    ],
)
def test_how_values_are_displayed(metric: Metric, value: float | None, text: str) -> None:
    assert metric.text(value) == text


def test_values_are_aggregated_as_the_table_says() -> None:
    fold = MetricFold(NO_COUNTS, NO_COUNTS)
    fold.add({"rss_bytes": 5, "cpu_percent": 100.0, "read_bytes": 10}, 3.0)
    fold.add({"rss_bytes": 2, "cpu_percent": 0.0, "read_bytes": 25}, 1.0)
    found = {metric.name: value for metric in METRICS if (value := fold.value(metric)) is not None}
    assert found == {"rss_bytes": 5, "cpu_percent": 75.0, "read_bytes": 25}
    later = MetricFold()
    later.restore(MEMORY, 7, 10.0)
    later.restore(CPU, 50.0, 1.0)
    later.restore(CPU, None, 1.0)
    later.add({"rss_bytes": 6, "cpu_percent": 100.0}, 1.0)
    assert (later.value(MEMORY), later.value(CPU)) == (7, 75.0)


def test_a_counter_that_begins_again_has_no_negative_rate() -> None:
    assert present_use({"sent_bytes": 5}, {"sent_bytes": 10}, 2.0) == {"sent_bytes": 0}
    assert present_use({"sent_bytes": 5}, {"sent_bytes": 1}, 0.0) == {}

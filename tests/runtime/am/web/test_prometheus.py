"""The page that Prometheus scrapes, read as the text exposition format 0.0.4 is to be read."""

from __future__ import annotations

import math
import re
from collections import Counter

import attrs
import pytest
from hypothesis import given

from tests.runtime.am.web.site import Master, OpenGate, ask, router, serving
from tests.runtime.am.web.statuses import FULL, any_status, gang
from tony_provider.runtime.am.web.prometheus import exposition
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.protocol.status import JobStatus, ProcessStatus, TaskProgress

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>NaN|[+-]Inf|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Series = tuple[str, frozenset[tuple[str, str]]]


def read(text: str) -> dict[Series, float]:
    """Every series. As strict as the format: a family is told of once, before its samples, which stand together."""
    found: dict[Series, float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if told := re.fullmatch(r"# (HELP|TYPE) (\w+) (.+)", line):
            what, current, rest = told.groups()
            if what == "TYPE":
                assert current not in kinds
                assert rest in ("gauge", "counter")
                kinds[current] = rest
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        assert sample["name"] == list(kinds)[-1], line
        labels = _labels(sample["labels"] or "")
        found[sample["name"], frozenset(labels)] = float(sample["value"])
    for name, kind in kinds.items():
        assert (kind == "counter") == name.endswith("_total")
    return found


def _labels(text: str) -> list[tuple[str, str]]:
    labels, at = [], 0
    while at < len(text):
        label = _LABEL.match(text, at)
        assert label, text
        labels.append((label[1], re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], label[2])))
        at = label.end()
    return labels


def series(name: str, **labels: str) -> Series:
    return name, frozenset(labels.items())


def test_what_it_says_of_a_job() -> None:
    found = read(exposition(FULL))
    assert found[series("tony_job_info", application_id="application_1_0001", job_name="digits")] == 1
    assert {dict(labels)["state"]: value for (name, labels), value in found.items() if name == "tony_job_state"} == {
        state: state == "RUNNING"
        for state in (
            "WAITING STARTING RUNNING RESTARTING SUSPENDED RECOVERING FINISHING SUCCEEDED FAILED KILLED".split()  # noqa: SIM905
        )
    }
    assert found[series("tony_job_progress_ratio")] == 0.25
    assert found[series("tony_job_generation")] == 3
    assert found[series("tony_job_restarts_total")] == 4
    assert found[series("tony_job_checkpoint_step")] == 200
    assert found[series("tony_task_state", task="worker:0", state="RUNNING")] == 1
    assert found[series("tony_task_state", task="worker:2", state="LOST")] == 1
    assert found[series("tony_task_starts_total", task="worker:0")] == 5
    mine = {"task": "worker:0", "local_rank": "0"}
    assert found[series("tony_task_resident_memory_bytes", **mine)] == 3 << 30
    assert found[series("tony_task_cpu_cores", **mine)] == pytest.approx(1.51)
    assert found[series("tony_task_step", **mine)] == 250
    assert found[series("tony_task_steps_per_second", **mine)] == 2.5
    assert found[series("tony_task_metric", **mine, metric="loss")] == 0.123456
    assert math.isnan(found[series("tony_task_metric", **mine, metric="accuracy")])
    assert series("tony_task_step", task="worker:1", local_rank="0") not in found  # nothing was reported: not 0
    assert found[series("tony_series_left_out")] == 0


def test_names_and_values_that_programs_may_think_of() -> None:
    odd = 'a\\b"c"\nd{}=,\\n ü'
    progress = TaskProgress(1, None, None, {odd: math.inf, "low": -math.inf})
    task = attrs.evolve(FULL.tasks[0], progress=progress, further=[ProcessStatus(1, 4, rss_bytes=7)])
    found = read(exposition(attrs.evolve(FULL, name='"\n\\', tasks=[task])))
    mine = {"task": "worker:0", "local_rank": "0"}
    assert found[series("tony_task_metric", **mine, metric=odd)] == math.inf
    assert found[series("tony_task_metric", **mine, metric="low")] == -math.inf
    assert found[series("tony_task_resident_memory_bytes", task="worker:0", local_rank="1")] == 7
    assert series("tony_job_info", application_id="application_1_0001", job_name='"\n\\') in found


def test_large_jobs_are_cut_and_what_programs_report_goes_first() -> None:
    status = gang(500)
    progress = TaskProgress(1, None, None, {f"m{number}": 1.0 for number in range(200)})
    status = attrs.evolve(status, tasks=[attrs.evolve(task, progress=progress) for task in status.tasks])
    whole, cut = read(exposition(status, most=1_000_000)), read(exposition(status, most=5_000))
    assert len(cut) == 5_001
    left_out = series("tony_series_left_out")
    assert cut[left_out] == len(whole) - len(cut)
    by_name = Counter(name for name, _ in cut)
    assert by_name["tony_task_state"] == by_name["tony_task_step"] == 500
    assert by_name["tony_task_metric"] > 0
    assert cut.items() - {(left_out, cut[left_out])} <= whole.items()


@given(any_status)
def test_whatever_a_job_says_can_be_read(status: JobStatus) -> None:
    read(exposition(status))


def test_prometheus_own_parser_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    odd = 'a\\b"c"\nd'
    task = attrs.evolve(FULL.tasks[0], progress=TaskProgress(1, None, None, {odd: math.inf}))
    families = {
        each.name: each for each in parser.text_string_to_metric_families(exposition(attrs.evolve(FULL, tasks=[task])))
    }
    assert families["tony_job_restarts"].type == "counter"
    (sample,) = families["tony_task_metric"].samples
    assert (sample.labels["metric"], sample.value) == (odd, math.inf)


async def test_it_is_served_as_what_it_is() -> None:
    async with serving(Routes(OpenGate(), router(Master())).answer) as server:
        answered = await ask(server, "GET", "/metrics")
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert read(answered.body.decode())[series("tony_job_checkpoint_step")] == 40

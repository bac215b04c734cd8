"""The sparklines of the job's page: few points for however long, and pictures that say in words what they show."""

from __future__ import annotations

import math
import sys
from collections import Counter

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.runtime.am.web.site import Master, OpenGate, ask, serving, tails
from tests.runtime.am.web.statuses import FULL, NOW, gang
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.job_view import MOST_CURVE_TASKS, MOST_METRICS, POINTS, CoarseCurve, JobCurves
from tony_provider.runtime.am.web.page import JobPage, sparkline
from tony_provider.runtime.common.quantities import number
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol.status import JobStatus, TaskProgress


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats()), max_size=300))
@example([(0.0, 1.7e308), (0.0, 1.7e308), (5.0, 0.0)])
@example([(0.0, 0.0), (0.0, 5e-324), (5.0, 5e-324)])
def test_a_curve_is_bounded_and_drawn_whatever_comes(steps: list[tuple[float, float]]) -> None:
    curve, now = CoarseCurve(), 1e9
    for pause, value in steps:
        now += pause
        curve.add(now, value)
        assert len(curve.points) <= POINTS
    drawn = sparkline(curve, "<loss>", number)
    if drawn is not None:
        assert "nan" not in drawn
        assert "inf" not in drawn.partition("<polyline")[2]
        assert "<loss>" not in drawn


def test_a_long_curve_becomes_coarser_and_stays_whole() -> None:
    curve = CoarseCurve(max)
    for second in range(10_000):
        curve.add(float(second), float(second))
    assert POINTS / 2 <= len(curve.points) <= POINTS
    assert curve.span >= 10_000
    assert curve.points[0] == curve.seconds - 1
    assert list(curve.points) == sorted(curve.points)
    assert curve.newest == 9999.0


def test_where_nothing_was_known_there_is_a_gap() -> None:
    curve = CoarseCurve()
    for second in (0.0, 5.0, 50.0, 55.0):
        curve.add(second, second)
    drawn = sparkline(curve, "loss", number)
    assert drawn is not None
    assert drawn.count("<polyline") == 2
    assert 'aria-label="loss over 1 min: 0 to 55, now 55"' in drawn
    assert "<title>loss over 1 min: 0 to 55, now 55</title>" in drawn


def test_a_clock_that_is_set_back_is_not_followed() -> None:
    curve = CoarseCurve()
    for second in (1000.0, 1005.0, 3.0):
        curve.add(second, 1.0)
    assert len(curve.points) == 2


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.inf, 2.0]])
def test_of_one_number_there_is_no_picture(values: list[float]) -> None:
    curve = CoarseCurve()
    for place, value in enumerate(values):
        curve.add(5.0 * place, value)
    assert sparkline(curve, "loss", number) is None


def test_numbers_of_any_size_are_drawn() -> None:
    curve = CoarseCurve()
    for place, value in enumerate((-sys.float_info.max, sys.float_info.max)):
        curve.add(5.0 * place, value)
    drawn = sparkline(curve, "loss", number)
    assert drawn is not None
    assert 'points="0,14.5 1,1.5"' in drawn


def test_of_a_large_gang_the_first_tasks_have_curves() -> None:
    curves = JobCurves()
    metrics = {f"metric {n:04}": float(n) for n in range(1000)}
    progress = TaskProgress(step=1, steps_per_second=2.0, metrics=metrics)
    tasks = [attrs.evolve(task, rss_bytes=1 << 30, cpu_percent=9.0, progress=progress) for task in gang(300).tasks]
    use = {task.name: {"gpu_percent": 50.0, "read_bytes": 0.0} for task in tasks}
    for second in range(POINTS + 10):
        curves.add(attrs.evolve(FULL, tasks=tasks, leader="worker:0", updated_ms=NOW + 5000 * second), use)
    assert (len(curves.speed), len(curves.metrics)) == (MOST_CURVE_TASKS, MOST_METRICS)
    assert Counter(metric for _, metric in curves.use) == dict.fromkeys(
        ("rss_bytes", "cpu_percent", "gpu_percent", "read_bytes"), MOST_CURVE_TASKS
    )
    assert max(len(curve.points) for curve in curves.use.values()) <= POINTS


async def test_the_page_shows_how_it_went() -> None:
    curves = JobCurves()
    for second in (0, 5000, 10_000):
        use = {"worker:0": {"gpu_percent": second / 200, "written_bytes": second * 1000.0}}
        curves.add(attrs.evolve(FULL, updated_ms=NOW + second), use)
    router = web_app.make_router(
        Showing().as_master, Timeouts(), tails(), JobPage(Showing().status, curves=curves, use=lambda: use)
    )
    async with serving(web_app.Routes(OpenGate(), router).answer) as server:
        answered = await ask(server, "GET", "/sections")
    sections = answered.json()["sections"]
    assert "Memory of worker:0 over 15 s" in sections["tasks"]
    assert "Steps/s of worker:0 over 15 s" in sections["tasks"]
    assert "CPU of worker:0 over 15 s: 151 % to 151 %, now 151 %" in sections["tasks"]
    assert "GPU use of worker:0 over 15 s: 0 % to 50 %, now 50 %" in sections["tasks"]
    assert "Disk write rate of worker:0 over 15 s: 0 B/s to 9.5 MiB/s, now 9.5 MiB/s" in sections["tasks"]
    assert "receive" not in sections["tasks"].lower()
    assert all(
        f"<title>{name} over" in sections["metrics"] for name in FULL.metrics if math.isfinite(FULL.metrics[name])
    )
    assert "<script" not in sections["tasks"]


class Showing(Master):
    """A master whose job has everything."""

    def status(self) -> JobStatus:
        return FULL

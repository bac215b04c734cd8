"""Series of a job: on a clock of their own, whatever the tasks report, and however long it takes, within a bound."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.runtime.am.chains import describe, ownership
from tests.runtime.am.session.world import World, job
from tony_provider.cluster.records.history import read_samples
from tony_provider.runtime.am import sample_series
from tony_provider.runtime.am import sample_series as series_module
from tony_provider.runtime.am.sample_series import Series
from tony_provider.runtime.am.session.session_state import Heartbeat, Task
from tony_provider.runtime.application_history import TaskSample, read_segment, segment_name
from tony_provider.runtime.protocol.status import TaskProgress
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable
from tony_provider.runtime.storage.base import Source

DEADLINE = 30
EPOCH_MS = 1_700_000_000_000


class FullStorage(LocalStorage):
    """Takes nothing while it is told so."""

    full = False

    def write(self, uri: str, source: Source, **more: Any) -> int:
        if self.full:
            raise StorageUnreachable(uri, "write", "nobody answers")
        assert not more.get("overwrite") or not self.exists(uri), "a segment is written once"
        return super().write(uri, source, **more)


class Work:
    """The series of a job whose tasks run, on a clock that a test moves."""

    def __init__(self, directory: Path, workers: int = 1, *, am_attempt: int = 1, kept: int = 0) -> None:
        self.storage = FullStorage()
        self.told: list[str] = []
        self.directory = directory.as_uri()
        description = describe(directory, application_dir=self.directory)
        self.series = Series(
            ownership(description, attempt=am_attempt, storage=self.storage),
            kept=kept,
            note=lambda note: self.told.append(note.event),
        )
        world = World(job({"worker": workers}), ["worker"]).run()
        self.tasks: list[Task] = list(world.session.tasks)
        self.started = self.now = world.now
        self.series.begin(self.started, EPOCH_MS / 1000 - self.started)

    def beat(
        self,
        seconds: float,
        *,
        step: int | None = None,
        index: int = 0,
        metrics: dict[str, float] | None = None,
        **values: float,
    ) -> None:
        """After so many seconds."""
        self.now += seconds
        progress = None if step is None else TaskProgress(step, None, None, metrics or {})
        beat = Heartbeat({"rss_bytes": 1000, "cpu_percent": 0.0, **values}, progress=progress)
        self.series.heard(self.tasks[index], beat, self.now, leads=index == 0)

    def read(self) -> tuple[list[TaskSample], list[str]]:
        missing: list[str] = []
        return read_samples(LocalStorage(), self.directory, missing), missing

    def finished(self) -> list[TaskSample]:
        assert asyncio.run(self.series.finish())
        samples, missing = self.read()
        assert missing == []
        return samples

    def size(self) -> int:
        return sum(file.size for file in self.storage.list(f"{self.directory}/history"))


def test_heartbeats_are_folded_into_samples(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.started -= 10_000  # so that a sample is of ten seconds
    work.series.begin(work.started, EPOCH_MS / 1000 - work.now)
    work.beat(4, cpu_percent=100.0, rss_bytes=7000, read_bytes=10, written_bytes=5, gpu_percent=50.0, gpu_bytes=3)
    work.beat(6, cpu_percent=50.0, rss_bytes=2000, read_bytes=30, written_bytes=5, step=7, metrics={"loss": 0.5})
    work.beat(5, cpu_percent=0.0, read_bytes=31, step=8)
    first, second = work.finished()
    assert first == TaskSample(
        time_ms=EPOCH_MS + 10_000,
        seconds=10.0,
        task="worker:0",
        generation=1,
        values={
            "rss_bytes": 7000,
            "cpu_percent": 70.0,
            "read_bytes": 30,
            "written_bytes": 5,
            "gpu_percent": 50.0,
            "gpu_bytes": 3,
        },
        step=7,
        metrics={"loss": 0.5},
    )
    assert (second.time_ms, second.seconds, second.values["read_bytes"], second.step) == (EPOCH_MS + 15_000, 5.0, 1, 8)
    assert "written_bytes" not in second.values  # nobody has said it


def test_what_a_task_uses_at_present(tmp_path: Path) -> None:
    work = Work(tmp_path, 2)
    work.beat(1, read_bytes=9_000, gpu_percent=40.0)
    held = {"rss_bytes": 1000, "cpu_percent": 0.0}
    assert work.series.use() == {"worker:0": {**held, "gpu_percent": 40.0}}  # what it read before is of any age
    work.beat(2, read_bytes=9_500, sent_bytes=10, gpu_percent=60.0, gpu_bytes=7)
    assert work.series.use() == {"worker:0": {**held, "gpu_percent": 60.0, "gpu_bytes": 7, "read_bytes": 250.0}}
    for _ in range(10):  # over the end of a sample
        work.beat(3, read_bytes=9_500, sent_bytes=40)
    assert work.series.use() == {"worker:0": {**held, "read_bytes": 0.0, "sent_bytes": 0.0}}
    work.tasks[0].attempt += 1
    work.beat(3, read_bytes=50)  # another container counts from 0
    assert work.series.use() == {"worker:0": held}
    work.series.ended(work.tasks[0], None, work.now, leads=True)
    assert work.series.use() == {}


def test_a_processs_last_report_is_kept(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.beat(2, step=1)
    work.series.ended(work.tasks[0], TaskProgress(100, 100, None, {"accuracy": 0.9}), work.now + 1, leads=True)
    (sample,) = work.finished()
    assert (sample.step, sample.metrics, sample.seconds) == (100, {"accuracy": 0.9}, 3.0)


def test_one_that_ends_before_any_heartbeat_has_a_sample(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.series.ended(work.tasks[0], TaskProgress(3), work.now + 1, leads=True)
    (sample,) = work.finished()
    assert (sample.step, sample.values.keys() & {"rss_bytes", "cpu_percent"}) == (3, set())


def test_another_generation_is_another_sample(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.beat(1, step=50)
    process = work.tasks[0].process
    assert process is not None
    process.generation = 2
    work.beat(1, step=20)
    assert [(each.generation, each.step) for each in work.finished()] == [(1, 50), (2, 20)]


def test_what_a_container_has_read_is_counted_once_over_the_starts_in_it(tmp_path: Path) -> None:
    work = Work(tmp_path)
    (task,) = work.tasks
    work.beat(2, read_bytes=1000)
    work.series.ended(task, None, work.now, leads=True)
    assert task.process is not None
    task.process.generation, task.process.started_at = 2, work.now
    work.beat(5, read_bytes=1300)
    assert [(each.generation, each.seconds, each.values["read_bytes"]) for each in work.finished()] == [
        (1, 2, 1000),
        (2, 5, 300),
    ]


async def test_a_task_that_is_heard_again_after_a_silence_goes_on_where_it_was(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.beat(2, read_bytes=1000)
    await work.series._sample_all(work.now + 1)
    work.beat(100, read_bytes=1300)
    assert await work.series.finish()
    samples, _ = work.read()
    assert [(each.seconds, each.values["read_bytes"]) for each in samples] == [(2, 1000), (100, 300)]


async def test_a_task_may_end_while_the_samples_of_silent_ones_are_made(tmp_path: Path) -> None:
    work = Work(tmp_path, workers=3)
    for index in range(3):
        work.beat(1, index=index)
    making = asyncio.create_task(work.series.finish())
    await asyncio.sleep(0)
    for task in work.tasks:
        work.series.ended(task, None, work.now, leads=False)
    assert await asyncio.wait_for(making, DEADLINE)
    assert {sample.task for sample in work.read()[0]} >= {"worker:0"}


def test_what_a_later_master_did_not_see_is_not_in_its_numbers(tmp_path: Path) -> None:
    work = Work(tmp_path, am_attempt=2)
    work.beat(1, read_bytes=1000)
    work.beat(1, read_bytes=1010)
    (sample,) = work.finished()
    assert sample.values["read_bytes"] == 10


def test_a_clock_that_stands_still_breaks_nothing(tmp_path: Path) -> None:
    work = Work(tmp_path)
    for _ in range(3):
        work.beat(0, cpu_percent=10.0)
    work.beat(-5, cpu_percent=10.0)
    (sample,) = work.finished()
    assert (sample.seconds, "cpu_percent" in sample.values) == (0.0, False)


def test_metrics_beyond_those_that_are_kept_are_counted_and_named(tmp_path: Path) -> None:
    work = Work(tmp_path)
    metrics = {f"<img src=x onerror=alert({number})>": math.nan for number in range(10_000)}
    work.beat(5, step=1, metrics={"a" * 101: 1.0, **metrics})
    assert asyncio.run(work.series.finish())
    (sample,), missing = work.read()
    assert len(sample.metrics) == 50
    assert all(math.isnan(value) for value in sample.metrics.values())
    (line,) = missing
    assert line.startswith("series: 1000 metrics above the limit were left out, such as <img src=x")


def every(until: float, tasks: int) -> Iterator[tuple[float, int]]:
    """When heartbeats come, and whose: in a long job fewer than there are."""
    now = 0.0
    while now < until:
        pause = max(3.0, now / 20)
        for index in range(tasks):
            yield (0.0 if index else pause), index
        now += pause


@settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    tasks=st.sampled_from([1, 2, 40]),
    hours=st.sampled_from([0.1, 3, 24 * 7, 24 * 365]),
    metrics=st.integers(0, 60),
    most=st.sampled_from([40_000, 200_000]),
    seed=st.integers(),
)
def test_any_number_of_tasks_for_any_time_stays_within_the_bound(
    tmp_path_factory: pytest.TempPathFactory, tasks: int, hours: float, metrics: int, most: int, seed: int
) -> None:
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_module, "SeriesBudget", partial(sample_series.SeriesBudget, most=most))
        work = Work(tmp_path_factory.mktemp("series"), tasks)

    async def live() -> None:
        next_segment = 0.0
        for number, (seconds, index) in enumerate(every(hours * 3600, tasks)):
            said = {f"a metric {each}": chance.random() for each in range(metrics)}
            work.beat(seconds, step=number, index=index, rss_bytes=chance.getrandbits(33), metrics=said)
            if work.now >= next_segment:
                assert await work.series.write()
                next_segment = work.now + max(15.0, 0.05 * (work.now - work.started))
        assert await work.series.finish()

    asyncio.run(live())
    samples, _ = work.read()
    assert work.size() <= most
    times = [sample.time_ms for sample in samples if sample.task == "worker:0"]
    assert len(times) > 1
    assert times == sorted(times)


def test_a_week_of_a_thousand_tasks_is_seen_from_its_beginning_to_its_end() -> None:
    budget = sample_series.SeriesBudget()
    now, apart = 0.0, []
    while now < 7 * 86400:
        seconds = budget.seconds(now, 1000, leads=False)
        apart.append((now, seconds))
        for _ in range(1000):
            budget.sampled(150, leads=False)
        budget.used(150_000, 50_000)
        now += seconds
    assert apart[0][1] <= 10
    assert len(apart) >= 100
    assert apart[-1][1] < 86400
    assert budget.allows(0)


def test_former_masters_bytes_count() -> None:
    most = sample_series.MOST_BYTES
    assert sample_series.SeriesBudget(most - 10).allows(10)
    assert not sample_series.SeriesBudget(most - 10).allows(11)
    assert sample_series.SeriesBudget(most).seconds(1.0, 1, leads=True) == math.inf


async def test_a_store_that_refuses_for_a_while_costs_nothing_but_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_module, "_MOST_WAITING", 3000)
    work = Work(tmp_path)
    work.beat(5, step=1)
    work.storage.full = True
    assert not await work.series.write()
    assert "series-1-0001.jsonl.gz has not been written since" in work.series.trouble
    for number in range(2, 100):
        work.beat(20, step=number)
    assert not await work.series.write()
    assert work.told == ["not_written"]
    work.storage.full = False
    assert await work.series.write()
    assert work.series.trouble == ""
    work.beat(20, step=100)
    assert await work.series.finish()
    assert work.told == ["not_written", "written_again"]
    samples, (missing,) = work.read()
    steps = [sample.step for sample in samples]
    assert (steps[0], steps[1]) == (1, 2)
    assert 10 < len(steps) < 100
    assert missing == f"series: {100 - len(steps)} samples were left out when they were written"


async def test_segments_are_written_while_it_runs_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_module, "_SOONEST", 0.01)
    work = Work(tmp_path)
    work.series.begin(asyncio.get_running_loop().time(), 0.0)
    running = asyncio.ensure_future(work.series.run())
    for number in (1, 2):
        work.beat(5, step=number)
        file = tmp_path / "history" / segment_name(1, number)
        async with asyncio.timeout(DEADLINE):
            while not file.exists():  # noqa: ASYNC110 - another thread makes it
                await asyncio.sleep(0.01)
        assert [each.step for each in read_segment(file.read_bytes(), most_bytes=1 << 20, most_samples=10).samples] == [
            number
        ]
    work.series.stop()
    await asyncio.wait_for(running, DEADLINE)
    assert await work.series.finish()
    assert len(list((tmp_path / "history").iterdir())) == 2


async def test_a_store_that_does_not_answer_at_the_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_module, "_LAST_WRITE", 0.1)
    work = Work(tmp_path)
    answers = asyncio.Event()

    async def hang() -> bool:
        return await answers.wait()

    monkeypatch.setattr(work.series, "write", hang)
    work.beat(5, step=1)
    assert not await asyncio.wait_for(work.series.finish(), DEADLINE)

"""Where a job's time went, and what its tasks used, on the session's own clock."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.am.session.world import World, job, task_type
from tony_provider.runtime.am.session.restart_policy import CommittedSave
from tony_provider.runtime.am.session.session_events import CheckpointCommitted, FromTask, QuotaWarning
from tony_provider.runtime.am.session.session_state import Heartbeat
from tony_provider.runtime.jobspec.model import Memory, RestartPolicy
from tony_provider.runtime.protocol.status import TaskProgress, TimeUse, TypeUse

EXCLUSIVE = ("allocation", "localisation", "start", "training", "restarts", "end")


def world(workers: int = 2) -> World:
    return World(job({"worker": workers}, policy=RestartPolicy()), ["worker"])


def times(of: World) -> TimeUse:
    found = of.status.times
    assert found is not None
    return found


def use(of: World) -> TypeUse:
    (found,) = of.status.use
    return found


def hear(of: World, name: str, **values: float) -> None:
    of.report(name, Heartbeat({"rss_bytes": 1000, "cpu_percent": 0.0, **values}))


def begun(of: World) -> World:
    """After 3 s of waiting for containers, and 4 s for executors."""
    of.tick(3)
    of.grant_all()
    of.tick(4)
    of.register_all()
    of.start_all()
    return of


def test_each_moment_counts_once() -> None:
    job = begun(world())
    job.tick(5)
    job.beat("worker:0", 1)
    job.tick(60)
    job.end("worker:0")
    job.end("worker:1")
    job.tick(2)
    job.complete_all()
    assert times(job) == TimeUse(allocation=3, localisation=4, start=5, training=60, end=2)


def test_archives_that_executors_unpack_are_localisation() -> None:
    job = world()
    job.tick(3)
    job.grant_all()
    job.tick(4)
    job.register_all()
    job.tick(20)
    job.start_all()
    job.tick(5)
    job.beat("worker:0", 1)
    assert times(job) == TimeUse(allocation=3, localisation=24, start=5)


def test_a_restart_lasts_up_to_a_step_and_what_is_done_again_is_repeated() -> None:
    job = begun(world())
    job.beat("worker:0", 1)
    job.tick(60)
    job.beat("worker:0", 100)
    job.end("worker:1", exit_code=1)
    job.tick(0)
    down = times(job)
    while job.generation < 2:
        job.obey_all()
        job.tick(1)
    job.start_all()
    job.tick(7)
    job.beat("worker:0", 1)
    restarts = times(job).restarts
    assert restarts >= 8
    job.tick(30)
    job.beat("worker:0", 100)
    job.tick(20)
    assert attrs.evolve(times(job), restarts=0.0) == attrs.evolve(
        down, training=60 + 30 + 20, repeated=30, restarts=0.0
    )
    assert times(job).restarts == restarts


def test_what_is_told_while_the_gang_stops_is_done_again_too() -> None:
    job = begun(world())
    job.beat("worker:0", 1)
    job.tick(60)
    job.end("worker:1", exit_code=1)
    job.beat("worker:0", 100)
    while job.generation < 2:
        job.obey_all()
        job.tick(1)
    job.start_all()
    job.beat("worker:0", 1)
    job.tick(30)
    job.beat("worker:0", 50)
    assert times(job).repeated == 30


def test_a_program_that_never_reports_anything_works_all_the_time() -> None:
    job = begun(world())
    job.tick(50)
    assert times(job).start == 50
    job.end("worker:0")
    job.end("worker:1")
    assert (times(job).start, times(job).training) == (0, 50)


def test_a_program_that_is_silent_for_long_works() -> None:
    job = begun(world())
    for _ in range(20):
        job.tick(60)
    assert (times(job).start, times(job).training) == (0, 1200)


def test_one_that_reports_late_has_started_until_then() -> None:
    job = begun(world())
    job.tick(500)
    job.beat("worker:0", 1)
    job.tick(10)
    assert (times(job).start, times(job).training) == (500, 10)


def test_one_whose_first_step_comes_after_all_has_started_until_then() -> None:
    """It was taken for one that reports nothing."""
    job = begun(world())
    for _ in range(15):
        job.tick(60)
    assert (times(job).start, times(job).training) == (0, 900)
    job.beat("worker:0", 1)
    job.tick(10)
    assert (times(job).start, times(job).training) == (900, 10)


@pytest.mark.parametrize("epoch", [480, 960])
def test_one_that_reports_at_the_end_of_each_epoch_only_has_worked_before(epoch: int) -> None:
    """And is called no slow starter: the steps that it reports took their time."""
    job = begun(world())
    for _ in range(epoch // 60 + 2):
        job.tick(60)
    job.beat("worker:0", 500)
    job.tick(epoch)
    job.beat("worker:0", 1000, pace=500 / epoch)
    assert (times(job).start, times(job).training) == (120, 2 * epoch)
    job.tick(epoch)
    job.beat("worker:0", 1500, pace=500 / epoch)
    assert (times(job).start, times(job).training) == (120, 3 * epoch)


def test_one_that_has_reported_once_is_not_known_to_have_started_slowly() -> None:
    job = begun(world())
    job.tick(500)
    job.beat("worker:0", 100)
    job.tick(10)
    assert times(job).start == 500
    job.end("worker:0")
    job.end("worker:1")
    assert (times(job).start, times(job).training) == (0, 510)


def test_a_restart_of_one_that_reports_at_the_end_of_each_epoch_only() -> None:
    job = begun(world())
    job.tick(480)
    job.beat("worker:0", 500)
    job.tick(480)
    job.beat("worker:0", 1000, pace=500 / 480)
    job.end("worker:1", exit_code=1)
    while job.generation < 2:
        job.obey_all()
        job.tick(1)
    job.start_all()
    down = times(job)
    for _ in range(10):
        job.tick(60)
    job.beat("worker:0", 500)
    job.beat("worker:0", 501, pace=500 / 480)
    after = times(job)
    assert after.restarts == pytest.approx(down.restarts + 120)
    assert (after.training, after.repeated) == (down.training + 480, 480)


_HAPPENS = st.sampled_from(["waits", "waits", "reports", "tells its pace", "fails"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_HAPPENS, st.integers(0, 900)), max_size=12))
def test_each_moment_counts_once_whatever_is_reported(course: list[tuple[str, int]]) -> None:
    job = begun(world())
    for what, number in course:
        if what == "fails":
            generation = job.generation
            job.end("worker:1", exit_code=1)
            for _ in range(200):
                job.obey_all()
                job.tick(1)
            if job.generation == generation:  # the budget of restarts is used up
                break
            job.start_all()
        elif what == "waits":
            job.tick(number)
        else:
            job.beat("worker:0", number, pace=number / 100 if what == "tells its pace" else None)
        found = times(job)
        assert sum(getattr(found, name) for name in EXCLUSIVE) == pytest.approx(job.now - 100)
        assert min(*(getattr(found, name) for name in EXCLUSIVE), found.repeated) >= 0
        assert found.repeated <= found.training + 0.1


@pytest.mark.parametrize("reports", [True, False])
def test_the_next_application_master_goes_on_counting(reports: bool) -> None:
    job = begun(world())
    if reports:
        job.beat("worker:0", 1)
    job.tick(60)
    began = job.now
    before, used = times(job), use(job)
    job.master_dies()
    job.come_back()
    job.tick(10)
    if not reports:
        job.end("worker:0")
        job.end("worker:1")
    later = times(job)
    assert later.training == pytest.approx(60 + job.now - began)
    assert (later.allocation, later.localisation) == (before.allocation, before.localisation)
    assert use(job).container_seconds > used.container_seconds + 2 * 5
    assert sum(getattr(later, name) for name in EXCLUSIVE) == pytest.approx(job.now - 100)


def test_what_a_type_asked_for_and_used() -> None:
    spec = task_type(2, memory=Memory(512), vcores=3, gpus=1)
    job = begun(World(world().spec.__class__(framework="standalone", tasks={"worker": spec}), ["worker"]))
    hear(job, "worker:0", cpu_percent=0.0)
    for percent in (50.0, 100.0):
        for _ in range(10):  # a master that has slept does not know for how long a heartbeat speaks
            job.tick(1)
            hear(job, "worker:1")
        hear(
            job,
            "worker:0",
            cpu_percent=percent,
            gpu_percent=percent / 2,
            gpu_bytes=int(percent),
            node_busy_percent=percent,
        )
    said = Heartbeat({"rss_bytes": 5000, "cpu_percent": 0.0})
    job.handle(FromTask("worker:1", 1, said))
    job.tick(10)
    assert use(job) == TypeUse(
        type="worker",
        tasks=2,
        container_seconds=2 * (4 + 30),
        memory_bytes=512 << 20,
        vcores=3,
        gpus=1,
        used_seconds=2 * 30,
        most_rss_bytes=5000,
        most_rss_task="worker:1",
        mean_cpu_percent=37.5,  # worker:0's 75 over 20 s, worker:1's 0
        crowded_percent=50.0,  # of worker:0's time; worker:1 does not say
        mean_gpu_percent=37.5,
        most_gpu_bytes=100,
    )


def test_what_a_task_kept_busy_for_half_a_minute() -> None:
    job = begun(world())
    for worker_0, worker_1 in [(400, 100)] * 3 + [(10, 110)] * 8:
        hear(job, "worker:0", cpu_percent=float(worker_0))
        hear(job, "worker:1", cpu_percent=float(worker_1))
        job.tick(5)
    # Worker:0's: 400 for ten seconds, then 10 for twenty. Its first heartbeat speaks for no time.
    assert use(job).most_cpu_percent == 140.0


def test_copies_of_checkpoints_add_up() -> None:
    job = begun(world())
    point = None
    for step in (10, 20):
        job.beat("worker:0", step)
        job.commit(step)
        point = job.checkpoints[-1]
    assert point is not None
    save = CommittedSave(["worker:0"], content_step=20, is_new=True, process_seconds=100.0)
    job.handle(CheckpointCommitted(point, save, 2.5))
    job.handle(CheckpointCommitted(point, save, 4.0))
    assert times(job).checkpoints == 6.5


def test_a_quota_that_may_not_hold_another_checkpoint_is_a_warning_while_it_lasts() -> None:
    job = begun(world())
    job.handle(QuotaWarning("the quota leaves 1 B"))
    assert "the quota leaves 1 B" in job.status.warnings
    assert "the quota leaves 1 B" in job.noted("quota")
    job.handle(QuotaWarning(""))
    assert job.status.warnings == []


def test_what_was_reported_before_the_last_failure_starts_nothing() -> None:
    job = begun(world())
    job.beat("worker:0", 50)
    job.tick(10)
    job.end("worker:1", exit_code=1)
    job.tick(1)
    task = job.task("worker:0")
    job.session.times.reported(task, TaskProgress(51), job.now)
    assert times(job).training == 10


def alone(workers: int = 2) -> World:
    """Tasks that start again alone, the others go on; the first one has reported a step. They work for a minute."""
    started = begun(World(job({"worker": workers}, policy=RestartPolicy()), ["worker"], alone=True))
    started.beat("worker:0", 1)
    started.tick(60)
    return started


def starts_again(job: World, name: str) -> None:
    """After a failure at its step 100, and 8 s of which it takes 3 to its first step."""
    job.beat(name, 100)
    job.end(name, exit_code=1)
    job.tick(5)
    job.start(name)
    job.tick(3)
    job.beat(name, 1)


@pytest.mark.parametrize(("workers", "part"), [(1, 1.0), (4, 0.25)])
def test_a_task_that_starts_again_alone_costs_its_part_of_the_time(workers: int, part: float) -> None:
    job = alone(workers)
    starts_again(job, "worker:0")
    assert (times(job).restarts, times(job).repeated) == (8 * part, 0)
    job.tick(20)
    assert (times(job).restarts, times(job).repeated) == (8 * part, 20 * part)
    job.beat("worker:0", 100)
    job.tick(7)
    assert times(job) == TimeUse(
        allocation=3, localisation=4, training=60 + 8 * (1 - part) + 27, restarts=8 * part, repeated=20 * part
    )


def test_one_that_reports_nothing_works_when_it_is_started_again() -> None:
    job = alone()
    job.end("worker:1", exit_code=1)
    job.tick(4)
    job.start("worker:1")
    job.tick(10)
    assert (times(job).restarts, times(job).repeated) == (2, 0)


def test_those_that_a_gang_waits_for_to_grow_are_not_down() -> None:
    spec = job({"worker": task_type(1, max_instances=4), "sidecar": 1}, policy=RestartPolicy())
    gang = begun(World(spec, ["worker"]))
    gang.beat("worker:0", 1)
    gang.resize(worker=4)
    gang.end("sidecar:0", exit_code=1)
    before = times(gang)
    gang.tick(60)
    after = times(gang)
    assert (after.training - before.training, after.restarts) == (60, before.restarts)


def test_the_next_application_master_takes_nobody_for_down_who_is_not_back_yet() -> None:
    job = alone()
    starts_again(job, "worker:0")
    before = times(job)
    job.master_dies()
    job.tick(10)
    job.come_back()
    job.tick(10)
    assert times(job).restarts == before.restarts

"""A job that is resized while it trains: no step is lost, and none is done on other data."""

from __future__ import annotations

import os
import signal
from itertools import groupby
from pathlib import Path

import pytest

from tests.jobs.busy import fill
from tests.jobs.full_batch import ends_as_if_undisturbed, steps, training, until_steps
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import until
from tony_provider.hooks.job import NotResizable
from tony_provider.runtime.protocol.status import JobState


def test_from_two_to_four_and_back_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    job = training(place, tmp_path)
    until_steps(job, tmp_path, 2)

    answer = job.handle.resize({"worker": 4}, "the night is free")
    assert answer == {"before": {"worker": 2}, "state": "RUNNING"}
    until_steps(job, tmp_path, 4)
    assert job.handle.resize({"worker": 2}, "it is day")["before"] == {"worker": 4}
    until_steps(job, tmp_path, 2)

    status = ends_as_if_undisturbed(job, tmp_path)
    assert [size for size, _ in groupby(size for _, size in steps(tmp_path))] == [2, 4, 2]
    assert (status.generation, len(status.tasks), status.resizing) == (3, 2, {})
    told = [event for event in job.events() if event["event"] in ("resizing", "larger", "smaller", "resized")]
    assert [(event["event"], event["message"]) for event in told] == [
        ("resizing", "2 workers -> 4: the night is free"),
        ("larger", "growing to 4 workers"),
        ("resized", "worker: resized to 4"),
        ("resizing", "4 workers -> 2: it is day"),
        ("smaller", "continuing without worker:2, worker:3"),
        ("resized", "worker: resized to 2"),
    ]
    assert {"worker-2.log", "worker-3.log"} <= {log.name for log in job.handle.stored_logs()}
    assert_nothing_left(place, job)


@pytest.mark.long
def test_resized_on_a_busy_queue_it_waits_for_room_and_trains_meanwhile(yarn: YarnPlace, tmp_path: Path) -> None:
    """The next master goes on with it, too."""
    memory = yarn.most_of_a_node // 3
    job = training(yarn, tmp_path, memory=f"{memory}MiB", instances=1, max_instances=3)
    until_steps(job, tmp_path, 1)
    busy = fill(yarn, memory)
    with pytest.raises(NotResizable, match="9 is not between 1 and 3"):
        job.handle.resize({"worker": 9}, "too many")

    job.handle.resize({"worker": 3}, "as soon as there is room")
    until(lambda: job.status().message.endswith("growing to 3 workers: waiting for 2 containers"), job.describe)
    until(lambda: "resizing" in {event["event"] for event in job.events()}, job.describe)  # the next one knows no more
    os.kill(job.master().pid, signal.SIGKILL)
    until(lambda: job.status().am_attempt == 2 and job.status().state is JobState.RUNNING, job.describe)
    until_steps(job, tmp_path, 1)
    busy.hook.kill(busy.id, "others need it")
    until_steps(job, tmp_path, 3)
    job.handle.resize({"worker": 1}, "others need it")
    until_steps(job, tmp_path, 1)

    ends_as_if_undisturbed(job, tmp_path)
    assert [size for size, _ in groupby(size for _, size in steps(tmp_path))] == [1, 3, 1]
    busy.end()
    assert_nothing_left(yarn, job)


def test_more_shards_than_tasks_are_wanted_for_the_largest_size(local: LocalPlace, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"7 shards for 8 tasks \(worker\); with `deal: static`"):
        training(local, tmp_path, max_instances=8)


@pytest.mark.long
def test_what_the_nodes_could_never_hold_is_refused_with_the_figures(yarn: YarnPlace, tmp_path: Path) -> None:
    most = yarn.nodes + 1
    job = training(yarn, tmp_path, memory=f"{yarn.most_of_a_node}MiB", instances=1, max_instances=most)
    until_steps(job, tmp_path, 1)
    with pytest.raises(
        NotResizable, match=f"worker={most} is not possible on this cluster: .* room for only {yarn.nodes}"
    ):
        job.handle.resize({"worker": most}, "one too many")
    assert job.status().resizing == {}
    assert "resizing" not in {event["event"] for event in job.events()}
    ends_as_if_undisturbed(job, tmp_path)


@pytest.mark.long
def test_on_this_machine_it_takes_what_the_connection_leaves(local: LocalPlace, tmp_path: Path) -> None:
    timeouts = {"spare": "1s", "grace": "30s"}
    job = training(local, tmp_path, grow="spare", job={"timeouts": timeouts})
    until_steps(job, tmp_path, 4)
    job.handle.resize({"worker": 3}, "another program needs the room")
    until_steps(job, tmp_path, 3)
    status = ends_as_if_undisturbed(job, tmp_path)
    assert [size for size, _ in groupby(size for _, size in steps(tmp_path))] == [2, 4, 3]
    assert (status.failure, status.resizing) == (None, {})
    assert_nothing_left(local, job)

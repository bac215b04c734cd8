"""The checkpoint directory that all tasks of a job share: who waits for whom, and who removes it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.checkpoint_paths import SharedCheckpoints

GO = threading.Event()
RESUMED = Resumed(ResumePoint(40, "hdfs://cluster/save-1", 1, 1000), "/mnt/tony/tony-alice/train/checkpoints/40")


def task(mount: Path, application: str = "application_1_0001", seconds: float = 30.0) -> SharedCheckpoints:
    directory = mount / "tony-alice" / "train"
    return SharedCheckpoints(directory, application, former_timeout=seconds, leader_timeout=seconds)


def test_the_other_tasks_wait_for_the_leader_of_their_own_generation(tmp_path: Path) -> None:
    leader, other = task(tmp_path), task(tmp_path)
    for each in (leader, other):
        each.open()
    leader.ready(1, None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.wait_ready, 2, GO)
        assert not waiting.done()
        leader.ready(2, RESUMED)
        assert waiting.result(30) == RESUMED


def test_what_a_former_try_has_restored_is_not_waited_for(tmp_path: Path) -> None:
    former = task(tmp_path)
    former.open()
    former.ready(1, RESUMED)
    former.close()
    other = task(tmp_path, "application_1_0002", seconds=0)
    other.open()
    with pytest.raises(OSError, match="the leading task has not restored"):
        other.wait_ready(1, GO)


def test_a_retry_changes_nothing_while_tasks_of_the_former_try_may_write(tmp_path: Path) -> None:
    former, leader = task(tmp_path), task(tmp_path, "application_1_0002")
    former.open()
    leader.open()
    impatient = task(tmp_path, "application_1_0002", seconds=0)
    with pytest.raises(OSError, match="tasks of a former attempt application_1_0001 still use"):
        impatient.wait_for_former(GO)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader.wait_for_former, GO)
        former.close()
        waiting.result(30)
    cancelled = threading.Event()
    cancelled.set()
    former.open()
    with pytest.raises(Cancelled):
        leader.wait_for_former(cancelled)


def test_what_a_killed_leader_was_uploading_is_removed(tmp_path: Path) -> None:
    leader = task(tmp_path)
    leader.open()
    snapshots = tmp_path / "tony-alice" / "train" / "snapshots"
    (snapshots / "1").mkdir(parents=True)
    (snapshots / "1" / "file-0").touch()
    leader.wait_for_former(GO)
    assert list(snapshots.iterdir()) == []
    leader.close()


def test_the_last_task_of_a_success_removes_the_directory(tmp_path: Path) -> None:
    leader, other = task(tmp_path), task(tmp_path)
    for each in (leader, other):
        each.open()
    leader.finished()
    leader.close()
    assert (tmp_path / "tony-alice" / "train" / "checkpoints").is_dir()
    other.close()
    assert list((tmp_path / "tony-alice").iterdir()) == []


def test_the_directory_stays_after_a_failure(tmp_path: Path) -> None:
    leader = task(tmp_path)
    leader.open()
    leader.close()
    assert (tmp_path / "tony-alice" / "train" / "checkpoints").is_dir()


def test_a_mount_that_is_missing_is_not_replaced_by_a_local_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="shared_dir mounted on each node"):
        task(tmp_path / "mnt").open()
    assert not (tmp_path / "mnt").exists()

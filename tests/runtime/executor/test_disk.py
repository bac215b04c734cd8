"""A container whose disk is full: the executor outlives it, keeps its link, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.executor import stored
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import CONTAINER
from tests.runtime.executor.test_mirror import COMMAND, uploads
from tests.runtime.executor.test_preparation import resume
from tony_provider.runtime.executor import workspace

_SMALL_DISK = "mkdir -p tony-work && mount -t tmpfs -o size=6m tmpfs tony-work && exec {python} -m {program}"


@pytest.fixture
def namespaces() -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here, to mount a small disk in")


@pytest.fixture
async def running(launch: Launch, namespaces: None) -> Running:
    """A trainer in a container that has 6 MiB for all it writes."""
    script = _SMALL_DISK.format(python=sys.executable, program="tony_provider.runtime.executor")
    running = await launch(COMMAND, launcher=("unshare", "-rm", "/bin/sh", "-c", script))
    await running.begin()
    await running.master.first("started")
    return running


async def test_a_full_disk_is_told_and_outlived(running: Running) -> None:
    running.order("save 10")
    uploaded = await running.master.uploaded(10)
    uri = stored.commit_uploaded(uploaded)
    running.master.answer(uploaded)
    running.order("fill")
    await running.master.heartbeat_with(lambda beat: beat.activity == "running, disk full")
    running.order("exit 3")
    exited = await running.master.first("exited")
    assert exited.exit_code == 3
    assert exited.node_problem.startswith("the disk of its container is full (")
    assert exited.output_tail == "cannot save: No space left on device"
    assert (await running.master.first("settled")).problem == ""
    await running.begin(generation=2, **resume(uri, 10))
    assert (await running.master.all_of("started", 2))[1].start == 2
    running.order("save 20 1000000")  # there is room again
    uploaded = await running.master.uploaded(20)
    assert uploaded.start == 2
    running.master.answer(uploaded)
    running.order("exit 0")
    assert await running.end() == 0


async def test_a_disk_without_room_for_another_save_is_reported(running: Running) -> None:
    running.master.grants = True
    running.order("save 10 1400000")
    await running.master.uploaded(10)
    running.order("save 20 1400000")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("the disk of its container has ")
    assert "its largest save so far has 2.7 MiB: have the program delete old saves" in beat.trouble
    for part in ("a", "b"):
        running.order(f"remove weights-10/{part}")
    await running.until_no_trouble()


async def test_a_checkpoint_on_a_full_disk_is_stored(running: Running) -> None:
    running.order("save 10 1000000")
    running.order("fill")
    await running.until(lambda: uploads(running) or "not stored yet" in running.executor.stderr, "it is sent")
    assert uploads(running)
    running.order("exit 1")
    running.master.answer(await running.master.uploaded(10))
    assert (await running.master.first("settled")).problem == ""
    assert len(running.master.identities) == 1  # it never lost its stream


def test_there_is_room(tmp_path: Path) -> None:
    assert workspace.disk_problem(tmp_path) is None
    assert workspace.save_space_warning(tmp_path, 1) == ""
    assert workspace.save_space_warning(tmp_path, 1 << 60).startswith("the disk of its container has ")
    assert workspace.save_space_warning(tmp_path / CONTAINER, 1) == ""
    assert workspace.disk_problem(tmp_path / CONTAINER) is None

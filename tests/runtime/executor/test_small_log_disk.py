"""A container whose logs are on a disk of few MiB: the task outlives it, and the job is told what it cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tony_provider.runtime.executor import output

MIB = 1 << 20
# Its own stderr is there, too, as on YARN.
_SMALL_DISK = """
mount -t tmpfs -o size={size}m tmpfs "$TONY_LOG_DIR"
{before}
exec {python} -m tony_provider.runtime.executor >"$TONY_LOG_DIR/stdout" 2>"$TONY_LOG_DIR/stderr"
"""
# Prints so many MB to each of its streams, tells, and waits to be told to end.
_PRINT = """
import pathlib, sys, time
line = 'x' * 99 + chr(10)
for _ in range({megabytes} * 10000):
    sys.stdout.write(line); sys.stderr.write(line)
print('done', flush=True)
sys.stderr.flush()
pathlib.Path('printed').touch()
while not list(pathlib.Path().glob('order-*')): time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here, to mount a small disk in")


async def printing(launch: Launch, *, megabytes: int, disk: int, before: str = "") -> Running:
    script = _SMALL_DISK.format(python=sys.executable, size=disk, before=before)
    command = f'env -u PYTHONUNBUFFERED python -c "{_PRINT.format(megabytes=megabytes)}"'
    running = await launch(command, launcher=("unshare", "-rm", "/bin/sh", "-c", script))
    await running.begin()
    return running


def log_files(running: Running) -> dict[str, int]:
    """Sizes of what is on the small disk, which only the container sees."""
    directory = Path("/proc", str(running.executor.process.pid), "root", *running.container.log_dir.parts[1:])
    return {path.name: path.stat().st_size for path in directory.iterdir()}


async def test_much_output_leaves_the_disk_room_and_is_told(launch: Launch) -> None:
    running = await printing(launch, megabytes=100, disk=24)
    beat = await running.master.heartbeat_with(lambda beat: beat.output_problem)
    assert "is nearly full" in beat.output_problem
    assert str(running.container.log_dir) in beat.output_problem
    await running.until_there("printed")
    assert sum(log_files(running).values()) < 0.9 * 24 * MIB  # else YARN gives the node up
    running.order("end")
    exited = await running.master.first("exited")
    assert (exited.exit_code, exited.output_problem) == (0, beat.output_problem)
    assert await running.end() == 0
    kept = running.log
    assert len(kept) > output.KEPT_LIMIT - 200
    assert "\ndone\n" in kept


async def test_a_disk_that_others_have_filled_costs_lines_only(launch: Launch) -> None:
    running = await printing(launch, megabytes=1, disk=1, before="cat /dev/zero >$TONY_LOG_DIR/others 2>/dev/null")
    await running.until_there("printed")
    assert log_files(running)["stderr"] == 0  # the executor's own lines neither
    running.order("end")
    exited = await running.master.first("exited")
    assert exited.exit_code == 0
    assert exited.output_problem.endswith("No space left on device")
    assert await running.end() == 0
    assert "\ndone\n" in running.log

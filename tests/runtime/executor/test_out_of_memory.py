"""A kernel that kills for want of memory, in a control group made for the test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch
from tests.waiting import settled
from tony_provider.runtime.executor.processes import OutOfMemoryWatch

_LIMIT = 400 << 20  # bytes
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    name = f"tony-test-{os.getpid()}"
    if (_V1 / "memory.limit_in_bytes").exists() and os.access(_V1, os.W_OK):
        group, limit = _V1 / name, "memory.limit_in_bytes"
    elif os.access(_V2, os.W_OK) and "memory" in (_V2 / "cgroup.subtree_control").read_text().split():
        group, limit = _V2 / name, "memory.max"
    else:
        pytest.skip("memory control groups cannot be made here")
    group.mkdir()
    try:
        (group / limit).write_text(str(_LIMIT))
        yield group
    finally:
        assert settled(lambda: (group / "cgroup.procs").read_text().split()) == []
        group.rmdir()


async def test_out_of_memory_takes_the_user_process_and_is_told(launch: Launch, group: Path) -> None:
    enter = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -m tony_provider.runtime.executor"
    running = await launch('python -c "b = bytearray(2_000_000_000)"', launcher=("/bin/sh", "-c", enter))
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.signal == signal.SIGKILL
    assert ended.out_of_memory
    assert not ended.stopped
    assert await running.end() == 0


def test_nothing_was_killed_for_memory() -> None:
    watch = OutOfMemoryWatch()
    watch.read()
    assert not watch.killed_recently()

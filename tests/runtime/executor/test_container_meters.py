"""What a container reads and writes, by real processes of this machine; networks by files as the kernel has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.executor.heartbeat import DiskMeter, NetworkMeter, NodeMeter
from tony_provider.runtime.executor.processes import descendants

NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  eth0: 1000 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
  eth1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
"""


def proc(directory: Path, **uses: tuple[int, int]) -> Path:
    """A /proc whose processes have read and written these bytes."""
    for process in directory.iterdir():
        (process / "io").unlink()
        process.rmdir()
    for name, (read, written) in uses.items():
        (directory / name.strip("_")).mkdir()
        text = f"rchar: 1\nwchar: 1\nread_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 0\n"
        (directory / name.strip("_") / "io").write_text(text)
    return directory


def test_what_processes_have_written_is_still_counted_when_they_are_gone(tmp_path: Path) -> None:
    meter = DiskMeter()
    before = meter.measure(descendants(os.getpid()))
    program = f"import os; f = open({str(tmp_path / 'file')!r}, 'wb'); f.write(bytes(1 << 22)); f.flush(); os.fsync(f)"
    subprocess.run(["sh", "-c", f'{sys.executable} -c "{program}"; true'], check=True, timeout=60)
    after = meter.measure(descendants(os.getpid()))
    assert after["written_bytes"] - before["written_bytes"] >= 1 << 22


def test_numbers_of_disks_never_go_back(tmp_path: Path) -> None:
    meter = DiskMeter(proc(tmp_path, self=(1, 1), _7=(10, 100), _8=(5, 5)))
    assert meter.measure([7, 8, 9]) == {"read_bytes": 16, "written_bytes": 106}
    proc(tmp_path, self=(1, 1), _8=(5, 5))  # 7 is being collected
    assert meter.measure([8]) == {"read_bytes": 16, "written_bytes": 106}
    proc(tmp_path, self=(12, 101), _8=(6, 5))
    assert meter.measure([8]) == {"read_bytes": 18, "written_bytes": 106}


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    assert DiskMeter(proc(tmp_path, _7=(1, 1))).measure([7]) == {}


@pytest.mark.parametrize(
    ("docker", "of_a_node", "use"),
    [
        (True, None, {"received_bytes": 1005, "sent_bytes": 26}),
        (True, "device", {}),
        (True, "bridge", {}),
        (False, None, {}),
    ],
)
def test_only_a_network_of_the_containers_own_counts(
    tmp_path: Path, docker: bool, of_a_node: str | None, use: dict[str, float]
) -> None:
    (tmp_path / "dev").write_text(NETWORK)
    if of_a_node:
        (tmp_path / "eth1" / of_a_node).mkdir(parents=True)
    assert NetworkMeter(docker=docker, counters=tmp_path / "dev", interfaces=tmp_path).measure() == use


def test_a_node_is_as_busy_as_all_its_processors_together(tmp_path: Path) -> None:
    counters = tmp_path / "stat"
    meter = NodeMeter(counters)
    assert meter.measure() == {}
    counters.write_text("cpu  100 0 50 800 50 0 0 0 100 0\ncpu0 1 2 3\n")
    assert meter.measure() == {}  # that is of the time since the node began
    counters.write_text("cpu  130 10 60 830 70 0 0 0 130 0\n")
    assert meter.measure() == {"node_busy_percent": 50.0}
    assert meter.measure() == {}
    counters.write_text("cpu  130 10 60 830 70 0 0 40 130 0\n")
    assert meter.measure() == {"node_busy_percent": 100.0}  # a hypervisor gave the time to others


def test_the_node_of_these_tests_tells_how_busy_it_is() -> None:
    meter = NodeMeter()
    meter.measure()
    while not (busy := meter.measure()):
        pass
    assert 0 <= busy["node_busy_percent"] <= 100

"""Checks of a node and its network before the user processes start."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import attrs
import pytest

from tests.waiting import until
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.preflight import (
    Ring,
    UnfitNodeError,
    check_network,
    clock_problems,
    disk_problems,
    driver_problems,
    found_within,
    memory_problems,
)
from tony_provider.runtime.frameworks.base import MAIN_PORT, TaskAddress
from tony_provider.runtime.jobspec.model import PortRange, Role

HOST = "127.0.0.1"
RANGE = PortRange(28000, 28999)
SECONDS = 2.0  # for an exchange in which a rank is missing


def test_a_healthy_node(tmp_path: Path) -> None:
    assert list(disk_problems(tmp_path)) == []
    assert list(memory_problems(64)) == []
    assert list(clock_problems()) == []
    assert list(tmp_path.iterdir()) == []


_ON_A_SMALL_DISK = """
import pathlib, sys
from tony_provider.runtime.executor.preflight import disk_problems
print(*disk_problems(pathlib.Path(sys.argv[1])), sep="\\n")
"""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("size=20m", ["its disk has 20 MiB free, less than 512 MiB"]),
        ("size=64k", ["its disk has 64 KiB free", "its disk does not store a file: [Errno 28]"]),
        ("size=1g,nr_inodes=100", ["its disk has room for only 99 more files"]),
        ("size=1g,ro", ["its disk does not store a file: [Errno 30] Read-only file system"]),
    ],
)
def test_a_disk_with_a_problem(tmp_path: Path, options: str, found: list[str]) -> None:
    """Mounted in a mount namespace of its own, which ends with the process."""
    mount = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, _ON_A_SMALL_DISK]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-root-user"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(found), lines
    assert all(line.startswith(part) for line, part in zip(lines, found, strict=True)), lines


def test_a_node_whose_memory_other_processes_use(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       65536000 kB\nMemAvailable:    1048576 kB\n")
    assert list(memory_problems(2048, meminfo)) == []
    (found,) = memory_problems(4096, meminfo)
    assert found == "its node has 1 GiB of memory available for a container of 4096 MiB"


def test_a_node_whose_clock_is_wrong() -> None:
    clock.follow(-7200.0)
    try:
        assert list(clock_problems()) == ["its clock is 2 h ahead of the clock of the job"]
    finally:
        clock.follow(None)


@pytest.mark.parametrize(
    ("xid", "age", "reported"),
    [(79, 10.0, True), (79, 7200.0, False), (31, 10.0, False)],  # 31: a program's error
)
def test_errors_of_a_driver_in_a_file_instead_of_the_kernels_log(
    tmp_path: Path, xid: int, age: float, reported: bool
) -> None:
    at = int((time.clock_gettime(time.CLOCK_MONOTONIC) - age) * 1e6)
    record = tmp_path / "kmsg"
    record.write_text(f"4,1723,{at},-;NVRM: Xid (PCI:0000:3b:00): {xid}, pid=77, GPU has fallen off the bus.\n")
    assert list(driver_problems(record)) == (["GPU PCI:0000:3b:00 had XID error 79"] if reported else [])


def test_a_node_without_a_readable_kernel_log(tmp_path: Path) -> None:
    assert list(driver_problems(tmp_path / "missing")) == []


def test_a_check_that_hangs_is_a_finding() -> None:
    hangs = threading.Event()

    def never() -> Iterator[str]:
        hangs.wait()
        yield from ()

    (found,) = found_within(0.2, [never], threading.Event())
    assert "does not answer within 0.2 s" in found
    with pytest.raises(Cancelled):
        found_within(60, [never], _set())
    hangs.set()


def test_all_findings_are_returned() -> None:
    assert found_within(10, [lambda: iter(["a", "b"]), lambda: iter(["c"])], threading.Event()) == ["a", "b", "c"]


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


# ---- the network ---------------------------------------------------------------------------------------------------


@attrs.define
class Ranks:
    """Ranks of one cluster, each with its own port and its own view of the others' addresses."""

    ports: list[HeldPorts]
    cancelled: threading.Event = attrs.field(factory=threading.Event)

    def ring(self, rank: int, cut: Sequence[int] = (), name: str = "ring") -> Ring:
        """``cut``: ranks that this rank cannot reach."""
        addresses = {
            number: TaskAddress("worker", number, Role.WORKER, HOST, {MAIN_PORT: 1 if number in cut else port})
            for number, port in enumerate(held.numbers[MAIN_PORT] for held in self.ports)
        }
        return Ring(rank, addresses, name)

    def exchange(self, rings: Sequence[Ring], seconds: float = 30.0) -> list[str]:
        """Return what each rank found, or an empty string."""
        with ThreadPoolExecutor(len(rings)) as pool:
            found = [pool.submit(check_network, ring, self.ports[ring.rank], self.cancelled, seconds) for ring in rings]
            return [_text(each) for each in found]


def _text(future: Future[None]) -> str:
    error = future.exception()
    if isinstance(error, UnfitNodeError):
        return str(error)
    future.result()
    return ""


@pytest.fixture
def ranks() -> Iterator[Callable[..., Ranks]]:
    with contextlib.ExitStack() as stack:

        def make(count: int, *, share: bool = False) -> Ranks:
            ports = [HeldPorts([MAIN_PORT], RANGE, share=share) for _ in range(count)]
            for each in ports:
                stack.callback(each.close)
            return Ranks(ports)

        yield make


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_all_ranks_reach_each_other(ranks: Callable[..., Ranks], count: int, share: bool) -> None:
    made = ranks(count, share=share)
    assert made.exchange([made.ring(rank) for rank in range(count)]) == [""] * count
    for held in made.ports:  # and a program can use its port at once, without SO_REUSEADDR
        held.release()
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(share))
            server.bind((HOST, held.numbers[MAIN_PORT]))


@pytest.mark.parametrize("sick", [0, 2])
def test_only_the_rank_that_reaches_nobody_is_unfit(ranks: Callable[..., Ranks], sick: int) -> None:
    made = ranks(4)
    others = [rank for rank in range(4) if rank != sick]
    rings = [made.ring(rank, cut=others if rank == sick else [sick]) for rank in range(4)]
    found = made.exchange(rings, SECONDS)
    assert [rank for rank, text in enumerate(found) if text] == [sick]
    assert found[sick].startswith("it reaches none of worker:")
    assert "Connection refused" in found[sick] or "Connect call failed" in found[sick]


def test_only_the_rank_that_nobody_reaches_is_unfit(ranks: Callable[..., Ranks]) -> None:
    made = ranks(4)
    found = made.exchange([made.ring(rank, cut=[1]) for rank in range(4)], SECONDS)
    assert [rank for rank, text in enumerate(found) if text] == [1]
    assert found[1].startswith("it can be reached from none of worker:")


def test_a_broken_path_between_two_ranks_is_not_the_fault_of_a_node(ranks: Callable[..., Ranks]) -> None:
    made = ranks(4)
    assert made.exchange([made.ring(rank, cut=[1] if rank == 0 else []) for rank in range(4)], SECONDS) == [""] * 4


def test_messages_of_others_do_not_count(ranks: Callable[..., Ranks]) -> None:
    made = ranks(2)
    found = made.exchange([made.ring(0), made.ring(1, name="another generation")], SECONDS)
    assert all(found)


def test_a_program_that_sends_something_else_disturbs_nobody(ranks: Callable[..., Ranks]) -> None:
    made = ranks(2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(check_network, made.ring(0), made.ports[0], made.cancelled, 30.0)
        address = (HOST, made.ports[0].numbers[MAIN_PORT])
        stranger = until(partial(_connected, address), lambda: "nobody listens")
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        check_network(made.ring(1), made.ports[1], made.cancelled, 30.0)
        first.result()
        stranger.close()


def _connected(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address, 1)
    except ConnectionRefusedError:
        return None


def test_a_request_to_stop_ends_the_exchange(ranks: Callable[..., Ranks]) -> None:
    made = ranks(2)
    made.cancelled.set()
    with pytest.raises(Cancelled):
        check_network(made.ring(0), made.ports[0], made.cancelled, 600.0)

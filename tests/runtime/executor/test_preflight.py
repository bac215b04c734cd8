"""Checks of a node and its network before the user processes start."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import attrs
import pytest

from tests.waiting import until
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.ports import HeldPorts, PortError
from tony_provider.runtime.executor.preflight import (
    Ring,
    UnfitNodeError,
    check_network,
    clock_problems,
    disk_problems,
    memory_problems,
    run_checks,
)
from tony_provider.runtime.frameworks.base import PREFLIGHT_PORT, TaskAddress
from tony_provider.runtime.jobspec.model import PortRange, Role

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
    assert found == "its available memory is 1 GiB, for a container of 4 GiB"


def test_a_node_whose_clock_is_wrong() -> None:
    clock.follow(-7200.0)
    try:
        assert list(clock_problems()) == ["its clock is 2 h ahead of the clock of the job"]
    finally:
        clock.follow(None)


def test_a_check_that_hangs_is_a_finding() -> None:
    hangs = threading.Event()

    def never() -> Iterator[str]:
        hangs.wait()
        yield from ()

    (found,) = run_checks(0.2, [never], threading.Event())
    assert "does not answer within 0.2 s" in found
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Cancelled):
        run_checks(60, [never], stopped)
    hangs.set()


def test_a_check_that_cannot_be_made_does_not_hide_the_others() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise OSError("no such file")

    assert run_checks(10, [broken, lambda: iter(["b"])], threading.Event()) == ["a", "b"]


# ---- the network ---------------------------------------------------------------------------------------------------


@attrs.define
class Ranks:
    """Tasks of one cluster, each with its own port and its own view of the others' addresses."""

    hosts: list[str]  # by rank; all are addresses of this machine
    ports: list[HeldPorts]
    cancelled: threading.Event = attrs.field(factory=threading.Event)

    def ring(self, rank: int, cut: Collection[int] = (), name: str = "ring") -> Ring:
        """``cut``: ranks that this rank cannot reach."""
        numbers = [held.numbers[PREFLIGHT_PORT] for held in self.ports]
        addresses = {
            number: TaskAddress("worker", number, Role.WORKER, host, {PREFLIGHT_PORT: 1 if number in cut else port})
            for number, (host, port) in enumerate(zip(self.hosts, numbers, strict=True))
        }
        return Ring(rank, addresses, name)

    def exchange(self, rings: Sequence[Ring], seconds: float = 30.0) -> list[str]:
        """Return what each rank found, or an empty string."""
        with ThreadPoolExecutor(len(rings)) as pool:
            found = [pool.submit(check_network, ring, self.ports[ring.rank], self.cancelled, seconds) for ring in rings]
            return [_text(each) for each in found]

    def without_host(self, sick: str, *, inbound: bool = False) -> list[str]:
        """Return what each rank finds if a host is cut off, or only for connections to it."""
        on_it = {rank for rank, host in enumerate(self.hosts) if host == sick}
        others = set(range(len(self.hosts))) - on_it
        cuts = [others if rank in on_it and not inbound else on_it - {rank} for rank in range(len(self.hosts))]
        return self.exchange([self.ring(rank, cut) for rank, cut in enumerate(cuts)], SECONDS)


def _text(future: Future[None]) -> str:
    error = future.exception()
    if isinstance(error, UnfitNodeError):
        return str(error)
    future.result()
    return ""


@pytest.fixture
def ranks() -> Iterator[Callable[..., Ranks]]:
    with contextlib.ExitStack() as stack:

        def make(*numbers: int, share: bool = False) -> Ranks:
            """``numbers``: of the host of each rank."""
            ports = [HeldPorts([PREFLIGHT_PORT], RANGE, share=share) for _ in numbers]
            for each in ports:
                stack.callback(each.close)
            return Ranks([f"127.0.2.{number}" for number in numbers], ports)

        yield make


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("hosts", [(1, 2, 3), (1, 2, 3, 4, 5, 6, 7), (1, 1, 2, 2, 3, 3)])
def test_all_ranks_reach_each_other_and_their_ports_stay_usable(
    ranks: Callable[..., Ranks], hosts: tuple[int, ...], share: bool
) -> None:
    made = ranks(*hosts, share=share)
    for name in ("first", "second"):
        rings = [made.ring(rank, name=name) for rank in range(len(hosts))]
        assert made.exchange(rings) == [""] * len(hosts)


def test_messages_go_to_other_hosts(ranks: Callable[..., Ranks]) -> None:
    ring = ranks(1, 1, 1, 2, 2, 2, 3, 3, 4).ring(0)
    assert ring.following(0) == [3, 6, 8]
    assert ring.following(5) == [6, 8, 0]
    assert ring.following(8) == [0, 3, 6]
    assert ranks(1, 1, 2).ring(0).following(0) == [2]


@pytest.mark.parametrize("inbound", [True, False])
def test_only_the_ranks_of_a_host_that_is_cut_off_are_unfit(ranks: Callable[..., Ranks], inbound: bool) -> None:
    """Several ranks are on each host: the neighbours of the sick host are not blamed."""
    found = ranks(1, 1, 2, 2, 3, 3, 4, 4).without_host("127.0.2.2", inbound=inbound)
    unfit = [rank for rank, text in enumerate(found) if text]
    assert unfit in ([2, 3], [2])  # messages go to one rank of a host
    start = "it received no message from worker:" if inbound else "it did not reach worker:"
    assert all(found[rank].startswith(start) for rank in unfit)
    assert inbound or "Connect call failed" in found[2]


def test_a_broken_path_between_two_hosts_is_not_the_fault_of_one(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3, 4)
    assert made.exchange([made.ring(rank, cut=[1] if rank == 0 else []) for rank in range(4)], SECONDS) == [""] * 4


def test_messages_of_another_generation_do_not_count(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3)
    found = made.exchange([made.ring(0), made.ring(1, name="another"), made.ring(2)], SECONDS)
    assert [bool(text) for text in found] == [False, True, False]


def test_an_answer_counts_when_the_other_end_has_it(ranks: Callable[..., Ranks]) -> None:
    """Seen: over a slow network, a rank ended before its answer was sent, and the other one found nobody."""
    made = ranks(1, 2, 3)
    ring = made.ring(0)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(check_network, ring, made.ports[0], made.cancelled, 60.0)
        second = pool.submit(check_network, made.ring(1, cut=[0]), made.ports[1], made.cancelled, 60.0)
        address = (made.hosts[0], made.ports[0].numbers[PREFLIGHT_PORT])
        slow = until(partial(_connected, address), lambda: "nobody listens")
        slow.sendall(ring.message(1))
        third = pool.submit(check_network, made.ring(2), made.ports[2], made.cancelled, 60.0)
        assert not wait([first], 1.0).done, "rank 1 has not read the answer yet"
        with slow, slow.makefile("rb") as answer:
            assert answer.read(len(ring.message(0))) == ring.message(0)
        first.result()
        made.cancelled.set()
        wait([second, third])


def test_a_program_that_sends_something_else_disturbs_nobody(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(check_network, made.ring(0), made.ports[0], made.cancelled, 60.0)
        address = (made.hosts[0], made.ports[0].numbers[PREFLIGHT_PORT])
        stranger = until(partial(_connected, address), lambda: "nobody listens")
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert made.exchange([made.ring(1), made.ring(2)], 60.0) == ["", ""]
        first.result()
        stranger.close()


def _connected(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address, 1)
    except ConnectionRefusedError:
        return None


def test_hosts_without_an_address_are_left_out(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3)
    made.hosts[2] = "no-such-host.invalid"
    rings = [made.ring(rank) for rank in (0, 1)]
    assert made.exchange(rings, SECONDS) == ["", ""]


def test_a_request_to_stop_ends_the_exchange(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3)
    made.cancelled.set()
    with pytest.raises(Cancelled):
        check_network(made.ring(0), made.ports[0], made.cancelled, 600.0)


def test_a_port_that_another_process_has_taken(ranks: Callable[..., Ranks]) -> None:
    made = ranks(1, 2, 3)
    made.ports[0].release()
    with socket.socket() as other:
        other.bind(("", made.ports[0].numbers[PREFLIGHT_PORT]))
        other.listen()
        with pytest.raises(PortError, match="was taken"):
            check_network(made.ring(0), made.ports[0], made.cancelled)

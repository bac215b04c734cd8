"""`make bench-scale`: one job of 100, 1,000, 3,000 and 10,000 tasks, and what its application master needs for it.

The application master is the real one, in a process of its own; so are the streams of its executors (gRPC, TLS, a proof
for each task). The executors are simulated, many in a process, and run nothing; the ResourceManager is a stand-in that
has room for everything. Told are the master's memory at its highest, the share of a core that it takes while nothing
happens, the longest time that its event loop did not come round, and the seconds until everybody runs: at the start,
after one user process has died, and after the master was killed. ``TASKS=100,1000`` takes other sizes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from benchmarks.processor import cpu_seconds
from benchmarks.scale_master import PROBE_FILE
from benchmarks.scale_nodes import EVERY_TASK
from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription, LocalAccess, LocalizedResource, ResourceKind
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.history.event_segments import encode_event
from tony_provider.runtime.history.stored_events import event_segments, read_events
from tony_provider.runtime.local.container_dir import write_tokens
from tony_provider.runtime.spec.model import JobSpec, TaskSpec
from tony_provider.runtime.storage import LocalStorage, read_bytes

SIZES = (100, 1000, 3000, 10_000)
EXECUTORS_IN_PROCESS = 2500
STEADY = 20.0  # seconds
TIMEOUT = 600.0  # seconds for each of the things that are measured
LOOK = 0.05  # seconds

MOST_MEMORY = 1536  # MiB, with 10,000 tasks
MOST_CPU = 100.0  # percent of a core
MOST_RESTART = 30.0  # seconds
MOST_LATE = 1.0  # seconds
MOST_GROWTH = 1.3  # memory for each further task, of the last size beside the one before

_MEBIBYTE = 1 << 20


@attrs.frozen
class Figures:
    tasks: int
    memory: float  # MiB resident at the highest, of both masters
    cpu: float  # percent of a core while nothing happens
    late: dict[str, float]  # seconds at the longest that the event loop did not come round, by what was done
    start: float  # seconds
    start_cpu: float  # seconds of processor time
    restart: float  # one user process has died
    together: float  # and all of them have, as they do when they lose each other
    recovery: float
    status: int  # bytes
    events: int

    def row(self) -> str:
        late = ", ".join(f"{seconds:.2f} s ({doing})" for doing, seconds in self.late.items())
        return (
            f"{self.tasks:>6} {self.memory:>8.0f} MiB {self.cpu:>5.0f} % {self.start:>7.1f} s {self.start_cpu:>8.1f} s "
            f"{self.restart:>7.1f} s {self.together:>7.1f} s {self.recovery:>7.1f} s "
            f"{self.status / 1024:>8.0f} KiB {self.events / 1024:>8.0f} KiB  {late}"
        )


@attrs.define
class Field:
    """One job, its nodes and its application master."""

    directory: Path
    tasks: int
    nodes: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    talks: list[Any] = attrs.field(factory=list)  # files of connections to the nodes
    master: subprocess.Popen[bytes] | None = None

    @property
    def sockets(self) -> list[Path]:
        number = -(-self.tasks // EXECUTORS_IN_PROCESS)
        return [self.directory / f"nodes-{each}" for each in range(number)]

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def stage(self) -> None:
        """As the Airflow side would."""
        application_id = f"application_{1700000000000 + os.getpid()}_{random.randint(1, 9999):04}"
        staged = self.store / contract.LAUNCH_DIR / contract.APPLICATION_FILE
        root = self.directory / "cluster"
        for each in (staged.parent, root):
            each.mkdir(parents=True)
        job = JobSpec("tensorflow", {"worker": TaskSpec("python train.py", instances=self.tasks)}, name="scale")
        description = ApplicationDescription(
            application_id=application_id,
            user="bench",
            job=job,
            application_dir=self.store.as_uri(),
            chain_dir=(self.directory / "chain-0001").as_uri(),
            webhdfs=None,
            resources=[LocalizedResource("train.py", "hdfs://bench/user/bench/train.py", 1, 1)],
            runtime=LocalizedResource(contract.RUNTIME_DIR, "hdfs://bench/runtime.zip", 1, 1, ResourceKind.ARCHIVE),
            local=LocalAccess(str(root), 1 << 30, 1 << 20),
            master_lost_after=900.0,  # as on YARN
            labels={"dag": "bench"},
        )
        for path in (staged, self.directory / contract.APPLICATION_FILE):
            path.write_bytes(dump_json(description))
        write_tokens(self.directory, Credentials({}, application_secrets(application_id, {})).to_bytes())

    def start_nodes(self) -> None:
        for path in self.sockets:
            self.nodes.append(self._spawn("nodes", "benchmarks.scale_nodes", str(path), str(self.directory)))
        for path in self.sockets:
            until(path.exists)
            self.talks.append(_connected(path).makefile("rwb"))

    def start_master(self, attempt: int) -> None:
        arguments = [str(self.directory), str(attempt), *map(str, self.sockets)]
        self.master = self._spawn(f"am-{attempt}", "benchmarks.scale_master", *arguments)

    def _spawn(self, log: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{log}.log").open("ab") as file:
            return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=file, stderr=file)

    def ask(self, **order: str) -> None:
        for talk in self.talks:
            talk.write(json.dumps(order).encode() + b"\n")
            talk.flush()

    def count(self, kind: str, value: int) -> int:
        """How many executors have met this attempt, run a process of this generation or start."""
        self.ask(order="count")
        answers = [json.loads(talk.readline()) for talk in self.talks]
        return sum(answer[kind].get(str(value), 0) for answer in answers)

    def until_all(self, kind: str, value: int) -> float:
        """Seconds until it is so of every executor."""
        began = time.monotonic()

        def reached() -> bool:
            assert self.master is not None
            if self.master.poll() is not None:
                raise RuntimeError(f"the application master has ended: {self.directory}/am-*.log")
            return self.count(kind, value) == self.tasks

        until(reached)
        return time.monotonic() - began

    def until_noted(self, text: str) -> None:
        """The event log on the store has it: what came later is lost with a master that is killed."""
        store = self.store.as_uri()
        until(lambda: any(text.encode() in encode_event(event) for event in read_events(LocalStorage(), store, [])))

    @property
    def events_size(self) -> int:
        """Bytes of the event log on the store."""
        return sum(each.size for each in event_segments(LocalStorage(), self.store.as_uri()))

    def kill_master(self) -> None:
        """As a node does that fails."""
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    @property
    def _pid(self) -> int:
        assert self.master is not None
        return self.master.pid

    @property
    def memory(self) -> float:
        """MiB resident, at the highest so far."""
        (line,) = (line for line in Path(f"/proc/{self._pid}/status").read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) / 1024

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self._pid)

    def late(self, since: float) -> float:
        """Seconds at the longest that the loop has not come round."""
        lines = (self.directory / PROBE_FILE).read_text().splitlines()
        return max((line["late"] for line in map(json.loads, lines) if line["at"] >= since), default=0.0)

    def size(self, name: str) -> int:
        return len(read_bytes(LocalStorage(), f"{self.store.as_uri()}/{name}"))

    def end(self) -> None:
        for process in (*self.nodes, *filter(None, [self.master])):
            process.kill()
            process.wait()


def until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {TIMEOUT:g} s")
        time.sleep(LOOK)


def _connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    until(lambda: found.connect_ex(str(path)) == 0)
    return found


@contextmanager
def field(tasks: int) -> Iterator[Field]:
    with tempfile.TemporaryDirectory(prefix="tony-scale-") as directory:
        found = Field(Path(directory), tasks)
        try:
            found.stage()
            found.start_nodes()
            yield found
        finally:
            found.end()


def measure(tasks: int) -> Figures:
    late: dict[str, float] = {}
    with field(tasks) as job:
        began = time.monotonic()
        job.start_master(1)
        start = job.until_all("generations", 1)
        start_cpu = job.cpu_seconds
        late["start"] = job.late(began)
        time.sleep(2)  # what the last of them said is worked off
        began, before = time.monotonic(), job.cpu_seconds
        time.sleep(STEADY)
        cpu = 100 * (job.cpu_seconds - before) / (time.monotonic() - began)
        late["steady"] = job.late(began)
        began = time.monotonic()
        job.ask(order="fail", task=f"worker:{tasks // 2}")
        restart = job.until_all("generations", 2)
        time.sleep(2)
        late["restart"] = job.late(began)
        began = time.monotonic()
        job.ask(order="fail", task=EVERY_TASK)
        together = job.until_all("generations", 3)
        time.sleep(2)
        late["all fail"] = job.late(began)
        job.until_noted('"generation":3')
        memory, status, events = job.memory, job.size(contract.STATUS_FILE), job.events_size
        job.kill_master()
        began = time.monotonic()
        job.start_master(2)
        recovery = job.until_all("attempts", 2)
        job.until_noted('"recovered"')
        recovery = time.monotonic() - began
        time.sleep(2)
        late["recovery"] = job.late(began)
        assert job.count("starts", 3) == tasks, "the new master has started somebody again"
        memory = max(memory, job.memory)
    return Figures(tasks, memory, cpu, late, start, start_cpu, restart, together, recovery, status, events)


def aims(found: list[Figures]) -> Iterator[str]:
    """Of the largest job, and of memory from the one size to the next."""
    most = found[-1]

    def aim(what: str, value: float, limit: float, unit: str) -> str:
        return f"{what}: {value:.2f} {unit}, aim {limit:g}: {'holds' if value <= limit else 'DOES NOT HOLD'}"

    yield aim("memory", most.memory, MOST_MEMORY, "MiB")
    yield aim("CPU while nothing happens", most.cpu, MOST_CPU, "%")
    yield aim("restart of the gang", max(most.restart, most.together), MOST_RESTART, "s")
    yield aim("delay of the loop", max(max(each.late.values()) for each in found), MOST_LATE, "s")
    for fewer, some, more in zip(found, found[1:], found[2:], strict=False):
        before = (some.memory - fewer.memory) / (some.tasks - fewer.tasks)
        after = (more.memory - some.memory) / (more.tasks - some.tasks)
        yield aim(f"memory of a task, {more.tasks} beside {some.tasks}", after / before, MOST_GROWTH, "times")


def main() -> None:
    sizes = [int(size) for size in os.environ.get("TASKS", "").split(",") if size] or list(SIZES)
    print(
        "one job, simulated executors, a stand-in for the ResourceManager; aims: with 10,000 tasks 1.5 GiB and one core"
    )
    heads = " tasks       memory    CPU     start    its CPU   restart  all fail  recovery       status       events"
    print(f"{heads}  loop late")
    found = []
    for size in sizes:
        found.append(measure(size))
        print(found[-1].row(), flush=True)
    for aim in aims(found):
        print(aim)


if __name__ == "__main__":
    main()

"""One job of thousands of simulated executors, for `benchmarks.scale`: its nodes and its application master.

The application master is the real one, in a process of its own; so are the streams of its executors (gRPC, TLS, a proof
for each task). The executors are simulated, many in a process, and run nothing; the ResourceManager is a stand-in that
has room for everything.
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
from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    packed_description,
)
from tony_provider.runtime.application_history import encode_event, event_segments, read_events
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.launch.launch_context import write_tokens
from tony_provider.runtime.storage import LocalStorage, read_bytes

EXECUTORS_IN_PROCESS = 2500
TIMEOUT = 600.0  # seconds for each of the things that are measured
LOOK = 0.05  # seconds


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
            runtime=LocalizedResource(contract.RUNTIME_FILE, "hdfs://bench/runtime.zip", 1, 1),
            local=LocalAccess(str(root), 1 << 30, 1 << 20),
            master_lost_after=900.0,  # as on YARN
            labels={"dag": "bench"},
        )
        staged.write_bytes(dump_json(description))
        secrets = application_secrets(application_id, {})
        secrets[contract.SECRET_DESCRIPTION] = packed_description(description)
        write_tokens(self.directory, Credentials({}, secrets).to_bytes())

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
                logs = sorted(self.directory.glob("am-*.log"))
                raise RuntimeError("the application master has ended:\n" + logs[-1].read_text()[-3000:])
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

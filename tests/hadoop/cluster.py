"""A real Hadoop cluster of ordinary processes on this machine."""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.hadoop.client import Client
from tests.hadoop.config import Configuration, Layout
from tests.hadoop.java import RM_ADMIN, Java
from tests.hadoop.kdc import Kdc
from tests.hadoop.processes import Process, spawn, stop, with_environment
from tests.hadoop.readiness import Services
from tests.hadoop.resolve import resolve
from tests.hadoop.settings import Addresses, Settings
from tests.hadoop.state import State
from tests.hadoop.tools import missing_tools

START_SECONDS = 120
STOP_SECONDS = 10
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 25


class ClusterError(Exception):
    """The cluster cannot be what was asked for; the message says why, with the end of the log that shows it."""


@dataclass
class HadoopCluster:
    """One cluster, all of it below `root`: state file, configuration, data and logs.

    `start()` makes it; `HadoopCluster.load(root)` is the one that already runs there, from any process.
    Daemons are called `namenode`, `datanode-1`, `resourcemanager-1`, `nodemanager-1`, …, and `kdc` on a secure cluster.
    """

    root: Path
    settings: Settings = field(default_factory=Settings)
    owner: Process | None = None
    _state: State | None = None

    @classmethod
    def load(cls, root: Path) -> HadoopCluster:
        """The cluster of `root`. Raises ClusterError when there is none."""
        root = root.absolute()
        state = State.read(Layout(root))
        if state is None:
            raise ClusterError(f"there is no cluster in {root}")
        return cls(root, state.settings, state.owner, state)

    @property
    def layout(self) -> Layout:
        return Layout(self.root.absolute())

    @property
    def state(self) -> State:
        """Addresses and processes. Raises ClusterError before the start."""
        if self._state is None:
            raise ClusterError(f"the cluster of {self.root} was not started")
        return self._state

    @property
    def services(self) -> Services:
        return Services(self.state, self.layout)

    @property
    def rm_webapp(self) -> list[str]:
        """Web addresses of the ResourceManagers, such as http://127.0.0.2:20888."""
        return self.state.rm_webapp

    @property
    def webhdfs(self) -> list[str]:
        """Web addresses of the NameNodes, without /webhdfs/v1."""
        return self.state.webhdfs

    @property
    def fs_default(self) -> str:
        """hdfs://127.0.0.1:port"""
        return self.state.fs_default

    def client(self, user: str) -> Client:
        """HTTP as one of the users."""
        return self.services.client(user)

    def log(self, daemon: str) -> Path:
        return self.layout.log(daemon)

    def running(self) -> bool:
        """Whether every daemon is there."""
        processes = self.state.processes
        return bool(processes) and all(process.alive() for process in processes.values())

    def start(self, seconds: float = START_SECONDS) -> bool:
        """Bring the cluster up and wait until it works, at most `seconds`; False if it was up already.

        On a root that `stop(keep=True)` left it comes up with its data and addresses. Raises ClusterError when a tool
        is missing, a daemon dies or the deadline passes; then nothing is left running, and the logs are kept.
        """
        missing = missing_tools(secure=self.settings.secure)
        if missing:
            raise ClusterError("A Hadoop cluster cannot run on this machine:\n- " + "\n- ".join(missing))
        with self._locked():
            known = State.read(self.layout)
            if known is not None and known.settings != self.settings:
                raise ClusterError(f"{self.root} holds a cluster with other settings: {known.settings}; stop it first")
            if known is not None:
                self._state = known
                if self.running():
                    return False
                self._stop_processes()
            self._start(known, time.monotonic() + seconds)
        return True

    def stop(self, *, keep: bool = False) -> None:
        """End every daemon and every container, and remove the root unless told to keep it."""
        with self._locked():
            self._state = State.read(self.layout) or self._state
            if self._state is not None:
                self._stop_processes()
                self.state.write(self.layout)
            if not keep:
                shutil.rmtree(self.root)
                self._state = None

    def kill(self, daemon: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a daemon a signal, and wait for its end if that is SIGKILL or SIGTERM."""
        process = self.state.processes[daemon]
        process.signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM) and not process.wait_gone(time.monotonic() + STOP_SECONDS):
            raise ClusterError(f"{daemon} did not end within {STOP_SECONDS} s of {number.name}")

    def restart(self, daemon: str, seconds: float = START_SECONDS) -> None:
        """Start a daemon again, at the same addresses and with its data, and wait until the cluster works."""
        stop([self.state.processes[daemon]], STOP_SECONDS)
        self._spawn(daemon)
        self.state.write(self.layout)
        self.wait_ready(time.monotonic() + seconds)

    def activate(self, number: int) -> None:
        """Of a pair of ResourceManagers, make resourcemanager-`number` the active one."""
        names = [each.name for each in self.state.addresses.resourcemanagers]
        # A standby cannot be told from here whether the other is gone: forcemanual takes our word.
        command = self._java.command("client", RM_ADMIN, "-transitionToActive", "--forcemanual", names[number - 1])
        environment = dict(self._java.environment())
        if self.settings.secure:
            environment["KRB5CCNAME"] = self.layout.kerberos_environment("yarn")["KRB5CCNAME"]
        done = subprocess.run(
            command, input="Y\n", env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"resourcemanager-{number} did not become active:\n{done.stdout}{done.stderr}")

    def wait_ready(self, deadline: float) -> None:
        """Wait until HDFS takes writes and YARN has all its nodes, at most to `deadline` (of time.monotonic)."""
        self._wait_until(self.services.hdfs_lacks, deadline)
        self._wait_until(self.services.yarn_lacks, deadline)

    def containers(self) -> list[Process]:
        """Live processes of YARN containers, by the environment that every container is started with."""
        return list(with_environment(f"LOCAL_DIRS={self.layout.data}/nodemanager-".encode()))

    def resident_bytes(self) -> dict[str, int]:
        """Memory in RAM of each daemon."""
        return {name: process.resident_bytes() for name, process in self.state.processes.items()}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time on one root; others wait."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def _java(self) -> Java:
        return Java(resolve(self.settings.version), self.layout, self.settings.secure)

    def _start(self, known: State | None, deadline: float) -> None:
        if known is None:
            self._empty_root()
        self._state = State(self.settings, known.addresses if known else Addresses.free(self.settings), {}, self.owner)
        try:
            if known is None:
                self._prepare()
            self._spawn_all(deadline)
            self._wait_until(self.services.hdfs_lacks, deadline)
            self.services.make_folders()
            if self.settings.resourcemanagers > 1:
                self.activate(1)
            self._wait_until(self.services.yarn_lacks, deadline)
            self.services.define_label()
        except BaseException:
            self._stop_processes()
            if known is None:
                self.layout.state.unlink(missing_ok=True)
            raise

    def _empty_root(self) -> None:
        """Remove what a failed start left."""
        for name in ("conf", "data", "kerberos", "logs"):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def _prepare(self) -> None:
        for folder in (self.layout.logs, self.layout.data / "tmp"):
            folder.mkdir(parents=True)
        Configuration(self.settings, self.state.addresses, self.layout).write_all()
        if self.settings.secure:
            Kdc(self.layout, self.state.addresses.kdc).create()
        self.state.write(self.layout)

    def _spawn_all(self, deadline: float) -> None:
        """All at once: each waits for those that it needs. Only the NameNode must have a formatted disk first."""
        if self.settings.secure:
            self._spawn("kdc")
            self._wait_until(lambda: _nobody_listens(self.state.addresses.kdc), deadline)
        for kind, all_of_it in (
            ("resourcemanager", self.state.addresses.resourcemanagers),
            ("nodemanager", self.state.addresses.nodemanagers),
            ("datanode", self.state.addresses.datanodes),
        ):
            for number in range(1, len(all_of_it) + 1):
                self._spawn(f"{kind}-{number}")
        if not (self.layout.data / "namenode" / "current" / "VERSION").is_file():
            self._format(deadline)
        self._spawn("namenode")
        self.state.write(self.layout)

    def _spawn(self, daemon: str) -> None:
        if daemon == "kdc":
            kdc = Kdc(self.layout, self.state.addresses.kdc)
            command, environment = kdc.command(), kdc.environment()
        else:
            command, environment = self._java.daemon(daemon), dict(self._java.environment())
        self.state.processes[daemon] = spawn(command, log=self.log(daemon), cwd=self.root, env=environment)

    def _format(self, deadline: float) -> None:
        command = [*self._java.daemon("namenode"), "-format", "-nonInteractive", "-force"]
        log = self.log("namenode-format")
        process = spawn(command, log=log, cwd=self.root, env=self._java.environment())
        if not process.wait_gone(deadline):
            stop([process], STOP_SECONDS)
        if not (self.layout.data / "namenode" / "current" / "VERSION").is_file():
            raise ClusterError(f"the NameNode's disk could not be formatted:\n{_tail(log)}")

    def _wait_until(self, lacks: Callable[[], str], deadline: float) -> None:
        """Wait until `lacks` says nothing more. Raises ClusterError at the deadline, or when a daemon has ended."""
        while still := lacks():
            for daemon, process in self.state.processes.items():
                if not process.alive():
                    raise ClusterError(f"{daemon} ended; its log ends with\n{_tail(self.log(daemon))}")
            if time.monotonic() > deadline:
                raise ClusterError(f"the cluster is not ready in time: {still}; logs are in {self.layout.logs}")
            time.sleep(POLL_SECONDS)

    def _stop_processes(self) -> None:
        """NodeManagers take their containers with them, except when they were killed: those are ended here."""
        stop(self.state.processes.values(), STOP_SECONDS)
        stop(self.containers(), 0)
        self.state.processes.clear()


def _nobody_listens(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return ""
    except OSError as error:
        return f"nobody listens on {address} ({error})"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])

"""A real Hadoop cluster of ordinary processes on this machine."""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.hadoop.client import Client
from tests.hadoop.config import Configuration, Layout
from tests.hadoop.daemons import STOP_SECONDS, ClusterError, Daemons
from tests.hadoop.kdc import Kdc
from tests.hadoop.processes import Process, stop
from tests.hadoop.readiness import Services
from tests.hadoop.resolve import resolve
from tests.hadoop.settings import Addresses, Settings
from tests.hadoop.state import State
from tests.hadoop.tls import Tls
from tests.hadoop.tools import missing_tools
from tests.hadoop.user_containers import UserContainers

START_SECONDS = 120
POLL_SECONDS = 0.1
# What a daemon logs once its master knows it; the same words in Hadoop 2.10 to 3.5.
REGISTERED = {"nodemanager": b"Registered with ResourceManager as", "datanode": b"successfully registered with NN"}


@dataclass
class HadoopCluster:
    """One cluster, all of it below `root`: state file, configuration, data and logs.

    `start()` makes it; `HadoopCluster.load(root)` is the one that already runs there, from any process.
    Daemons are called `namenode` (of a pair `namenode-1`, `namenode-2`), `datanode-1`, `resourcemanager-1`,
    `nodemanager-1`, …, and `kdc` on a secure cluster.
    """

    root: Path
    settings: Settings = field(default_factory=Settings)
    owner: Process | None = None
    _state: State | None = None

    @classmethod
    def load(cls, root: Path) -> HadoopCluster:
        """The cluster of `root`. Raises ClusterError when there is none."""
        state = State.read(Layout(root.absolute()))
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
        """HDFS and YARN, asked and changed by their administrators."""
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
    def httpfs(self) -> str:
        """Web address of HttpFS, without /webhdfs/v1."""
        return f"{self.settings.scheme}://{self.state.addresses.httpfs}"

    @property
    def fs_default(self) -> str:
        """hdfs://127.0.0.1:port, or hdfs://tony-hdfs of a pair of NameNodes."""
        return self.state.fs_default

    def client(self, user: str) -> Client:
        """HTTP as one of the users."""
        return self.services.client(user)

    def kill_application(self, application_id: str, user: str) -> None:
        """Have YARN kill an application, as one of the users. Raises HttpError."""
        url = f"{self.services.active_resourcemanager()}/ws/v1/cluster/apps/{application_id}/state"
        self.client(user).request("PUT", url, b'{"state": "KILLED"}', "application/json")

    def log(self, daemon: str) -> Path:
        return self.layout.log(daemon)

    def container_logs(self, application_id: str) -> list[Path]:
        """The log folders of an application's containers, on all nodes."""
        return sorted(self.layout.logs.glob(f"containers-*/{application_id}/container_*"))

    def containers(self) -> list[Process]:
        """Live processes of YARN containers."""
        return self._daemons.containers()

    def resident_bytes(self) -> dict[str, int]:
        """Memory in RAM of each daemon."""
        return {name: process.resident_bytes() for name, process in self.state.processes.items()}

    def running(self) -> bool:
        """Whether every daemon is there."""
        processes = self.state.processes
        return bool(processes) and all(process.alive() for process in processes.values())

    def start(self, seconds: float = START_SECONDS) -> bool:
        """Bring the cluster up and wait until it works, at most `seconds`; False if it was up already.

        On a root that `stop(keep=True)` left it comes up with its data and addresses. Raises ClusterError when a tool
        is missing, a daemon dies or the deadline passes; then nothing is left running, and the logs are kept.
        Also raises KdcError, TlsError and ResolveError. The first use of a version downloads it, outside the deadline.
        """
        missing = missing_tools(secure=self.settings.secure, users=self.settings.container_executor)
        if missing:
            raise ClusterError("A Hadoop cluster cannot run on this machine:\n- " + "\n- ".join(missing))
        resolve(self.settings.version, self.settings.extra_artefacts)
        with self._locked():
            known = State.read(self.layout)
            if known is not None and known.complete:
                if known.settings != self.settings:
                    raise ClusterError(f"{self.root} holds a cluster with {known.settings}; stop that first")
                self._state = known
                if self.running():
                    return False
            self._start(known, time.monotonic() + seconds)
        return True

    def stop(self, *, keep: bool = False) -> None:
        """End every daemon and every container, and remove the root unless told to keep it."""
        with self._locked():
            self._state = State.read(self.layout) or self._state
            if self._state is not None:
                self._daemons.stop_all()
            if not keep:
                self._empty_root()
                shutil.rmtree(self.root)
                self._state = None

    def kill(self, daemon: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a daemon a signal, and wait for its end if that is SIGKILL or SIGTERM."""
        process = self.state.processes[daemon]
        process.signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM) and not process.wait_gone(time.monotonic() + STOP_SECONDS):
            raise ClusterError(f"{daemon} did not end within {STOP_SECONDS} s of {number.name}")

    def restart(self, daemon: str, seconds: float = START_SECONDS) -> None:
        """Start a daemon again (ending it if need be), at its addresses and with its data.

        Returns when it works: a master answers and, unless it is now the standby of a pair, has all its nodes back; a
        NodeManager or DataNode is registered. Raises ClusterError when it ends, or after `seconds`.
        """
        stop([self.state.processes[daemon]], STOP_SECONDS)
        log = self.log(daemon)
        written = log.stat().st_size
        self._daemons.spawn(daemon)
        kind, _, number = daemon.partition("-")
        lacks: Callable[[], str]
        if kind in REGISTERED:
            # Its master may take it for alive still, so only its own word counts.
            lacks = partial(_lacks_line, log, written, REGISTERED[kind])
        elif kind == "resourcemanager":
            lacks = partial(self.services.resourcemanager_lacks, self.rm_webapp[int(number) - 1])
        elif kind == "namenode":
            lacks = partial(self.services.namenode_lacks, self.webhdfs[int(number or 1) - 1])
        else:
            lacks = self._kdc_lacks
        self._wait_until(lacks, time.monotonic() + seconds, [daemon])

    def activate(self, number: int) -> None:
        """Of a pair of ResourceManagers, make resourcemanager-`number` the active one. The other must be gone."""
        self._daemons.activate(self.state.addresses.resourcemanagers[number - 1].name)

    def activate_namenode(self, number: int) -> None:
        """Of a pair of NameNodes, make namenode-`number` the active one. The other must be gone."""
        self._daemons.activate_namenode(self.state.addresses.namenodes[number - 1].name)

    def make_zone(self, path: str, owner: str, key: str) -> None:
        """Make a directory of somebody's, an encryption zone of a new key; see KMS_ACLS for what its name means."""
        self.services.make_key(key)
        self.services.make_home(path, owner)
        self._daemons.make_zone(path, key)

    def decommission(self, *numbers: int, seconds: int) -> None:
        """Tell YARN that nodemanager-`number` of each is to leave within `seconds`, and that all others may stay.

        A NodeManager ends once it was made to go: `restart` it when its time is over and it is not told to leave.
        """
        self._daemons.decommission((self.state.addresses.nodemanagers[number - 1].host for number in numbers), seconds)

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until HDFS takes writes and YARN has all its nodes; raises ClusterError after `seconds`."""
        deadline = time.monotonic() + seconds
        self._wait_until(self.services.hdfs_lacks, deadline, [])
        self._wait_until(self.services.yarn_lacks, deadline, [])

    @property
    def _daemons(self) -> Daemons:
        return Daemons(self.state, self.layout)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time on one root; others wait."""
        self.root.mkdir(parents=True, exist_ok=True)
        foreign = [path.name for path in self.layout.root.iterdir() if path not in self.layout.entries]
        if foreign:
            # It will be emptied one day: never what is not ours.
            raise ClusterError(f"{self.root} is no cluster's folder: it holds {', '.join(sorted(foreign))}")
        with self.layout.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start(self, known: State | None, deadline: float) -> None:
        """Start all daemons: again, when a complete cluster was here before, else from nothing."""
        if known is not None:
            # Of a cluster that lost some of its daemons, or of a start that was cut off.
            Daemons(known, self.layout).stop_all()
        if known is None or not known.complete:
            self._prepare()
        try:
            self._bring_up(deadline)
        except BaseException:
            self._daemons.stop_all()
            raise

    def _prepare(self) -> None:
        self._empty_root()
        self._state = State(self.settings, Addresses.free(self.settings), owner=self.owner)
        self.state.write(self.layout)
        for folder in (self.layout.logs, self.layout.data / "tmp"):
            folder.mkdir(parents=True)
        if self.settings.https:
            Tls(self.layout).create(self.state.addresses.node_hosts)
        Configuration(self.settings, self.state.addresses, self.layout).write_all()
        if self.settings.secure:
            Kdc(self.layout, self.state.addresses.kdc).create()
        if self.settings.container_executor:
            UserContainers(self.layout, self.settings).write()

    def _bring_up(self, deadline: float) -> None:
        watched = self.state.processes
        if self.settings.secure:
            self._daemons.spawn("kdc")
            self._wait_until(self._kdc_lacks, deadline, watched)
        self._daemons.spawn_hadoop()
        if len(self.state.addresses.namenodes) > 1:
            self._wait_until(self.services.no_namenode_answers, deadline, watched)
            self.activate_namenode(1)
        self._wait_until(self.services.hdfs_lacks, deadline, watched)
        self.services.make_folders()
        if self.state.addresses.other_namenode is not None:
            self._wait_until(self.services.other_hdfs_lacks, deadline, watched)
            self.services.make_folders(self.state.other_webhdfs)
        if self.settings.kms:
            self._wait_until(self.services.kms_lacks, deadline, watched)
        if self.settings.httpfs:
            self._wait_until(self.services.httpfs_lacks, deadline, watched)
        if len(self.state.addresses.resourcemanagers) > 1:
            self._wait_until(self.services.no_resourcemanager_answers, deadline, watched)
            self.activate(1)
        self._wait_until(self.services.yarn_lacks, deadline, watched)
        self.services.define_label()
        self.state.complete = True
        self.state.write(self.layout)

    def _empty_root(self) -> None:
        """Remove all but the lock, the state file last."""
        for path in self.layout.entries:
            if path.is_dir():
                shutil.rmtree(path)
        self.layout.state.unlink(missing_ok=True)

    def _kdc_lacks(self) -> str:
        host, _, port = self.state.addresses.kdc.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                return ""
        except OSError as error:
            return f"the KDC does not listen ({error})"

    def _wait_until(self, lacks: Callable[[], str], deadline: float, watched: Iterable[str]) -> None:
        """Wait until `lacks` says nothing more; ClusterError at the deadline, or when a watched daemon has ended."""
        while still := lacks():
            self._daemons.check(list(watched))
            if time.monotonic() > deadline:
                raise ClusterError(f"the cluster is not ready in time: {still}; logs are in {self.layout.logs}")
            time.sleep(POLL_SECONDS)


def _lacks_line(log: Path, offset: int, line: bytes) -> str:
    with log.open("rb") as content:
        content.seek(offset)
        return "" if line in content.read() else f"{log} does not say {line.decode()!r}"

"""Sees what runs on the nodes while a job does: which containers where, and which processes below them."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.processes import parent_of, pids

PERIOD = 0.25  # seconds between two looks


class Witness:
    """Looks as ``user`` from a thread of its own, from ``with`` to its end."""

    def __init__(self, cluster: HadoopCluster, user: str) -> None:
        self.nodes: dict[str, set[str]] = {}  # container id -> hosts of the NodeManagers that said they run it
        self.programs: Counter[str] = Counter()  # of the processes below containers, as often as seen
        self.java: set[str] = set()  # command lines of Java processes below containers
        self.looks = 0
        self.error: BaseException | None = None
        self._cluster = cluster
        self._client = cluster.client(user)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None and error is None:
            raise self.error

    def hosts(self, application_id: str) -> dict[str, int]:
        """How many containers of an application's tasks each NodeManager ran."""
        # container_e01_1700000000000_0001_01_000002 is of application_1700000000000_0001; its master has 000001.
        number = application_id.removeprefix("application") + "_"
        names = [name for name in self.nodes if number in name and not name.endswith("_000001")]
        return dict(Counter(host for name in names for host in self.nodes[name]))

    def _watch(self) -> None:
        try:
            while not self._over.wait(PERIOD):
                for node in self._cluster.state.addresses.nodemanagers:
                    self._look_at_node(node.host, node.web)
                for process in below_nodemanagers(self._cluster):
                    self._look_at_process(process)
                self.looks += 1
        except BaseException as error:  # noqa: BLE001 - raised again where the thread is joined
            self.error = error

    def _look_at_node(self, host: str, web: str) -> None:
        containers = self._client.get_json(f"http://{web}/ws/v1/node/containers")["containers"] or {}
        for container in containers.get("container", []):
            self.nodes.setdefault(container["id"], set()).add(host)

    def _look_at_process(self, pid: int) -> None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            program = Path(f"/proc/{pid}/exe").readlink().name
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return  # ended meanwhile, or is none of ours
        self.programs[program] += 1
        if "java" in program:
            self.java.add(b" ".join(words).decode(errors="replace"))


def below_nodemanagers(cluster: HadoopCluster) -> list[int]:
    """Processes below the containers of a cluster: those below its NodeManagers, and strays in containers' folders."""
    managers = [process.pid for name, process in cluster.state.processes.items() if name.startswith("nodemanager")]
    parents = {pid: parent for pid in pids() if (parent := parent_of(pid)) is not None}
    found = {pid for pid in parents if any(ancestor in managers for ancestor in _ancestors(pid, parents))}
    # A NodeManager starts small shells of its own, too, as java itself: a copy of the JVM before its exec.
    found -= {pid for pid in found if parents[pid] in managers and _is_copy(pid, parents[pid])}
    strays = {process.pid for process in cluster.containers()}
    inside = {pid for pid in parents if _works_in(pid, cluster.layout.data)}
    return sorted((found | strays | inside) - set(managers))


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (parent := parents.get(pid)) is not None:
        found.append(parent)
        pid = parent
    return found


def _is_copy(pid: int, parent: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == Path(f"/proc/{parent}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False

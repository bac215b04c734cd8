"""The processes of one cluster: daemons, and the containers that NodeManagers start."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.hadoop.config import Layout
from tests.hadoop.java import CRYPTO_ADMIN, HDFS_ADMIN, RM_ADMIN, Java
from tests.hadoop.kdc import Kdc
from tests.hadoop.pairs import NAMESERVICE
from tests.hadoop.processes import Process, spawn, stop, with_environment
from tests.hadoop.resolve import resolve
from tests.hadoop.state import State
from tests.hadoop.user_containers import UserContainers

STOP_SECONDS = 10
# Daemons whose partners go at the same time may wait for them for long; nothing is lost by ending them.
STOP_ALL_SECONDS = 3
ADMIN_SECONDS = 60
LOG_TAIL_LINES = 25


class ClusterError(Exception):
    """The cluster cannot be what was asked for; the message says why, with the end of the log that shows it."""


@dataclass(frozen=True)
class Daemons:
    """Starts and ends them, and keeps the state file true at every step, so that no process is ever forgotten."""

    state: State
    layout: Layout

    def spawn(self, name: str) -> None:
        """Start one daemon, without waiting for it to work."""
        if name == "kdc":
            kdc = Kdc(self.layout, self.state.addresses.kdc)
            command, environment = kdc.command(), kdc.environment()
        else:
            command, environment = self._java.daemon(name), self._java.environment()
            if self.state.settings.container_executor and name.startswith("nodemanager-"):
                command = UserContainers(self.layout, self.state.settings).command(command)
        self.state.processes[name] = spawn(command, log=self.layout.log(name), cwd=self.layout.root, env=environment)
        self.state.write(self.layout)

    def spawn_hadoop(self) -> None:
        """Every JVM at once: each waits for those that it needs. Only NameNodes must find a formatted disk."""
        addresses = self.state.addresses
        for kind, all_of_it in (
            ("resourcemanager", addresses.resourcemanagers),
            ("nodemanager", addresses.nodemanagers),
            ("datanode", addresses.datanodes),
        ):
            for number in range(1, len(all_of_it) + 1):
                self.spawn(f"{kind}-{number}")
        for name in ("kms", "httpfs"):
            if getattr(addresses, name):
                self.spawn(name)
        daemons = [daemon for daemon, _ in addresses.named_namenodes]
        if not self._formatted(daemons[0]):
            self._format(daemons)
            if addresses.other_namenode is not None:
                self._format(["namenode-other"])
        if addresses.other_namenode is not None:
            daemons.append("namenode-other")
        for daemon in daemons:
            self.spawn(daemon)

    def check(self, names: list[str]) -> None:
        """Raise ClusterError when one of these daemons has ended."""
        for name in names:
            if not self.state.processes[name].alive():
                raise ClusterError(f"{name} ended; its log ends with\n{_tail(self.layout.log(name))}")

    def activate(self, resourcemanager: str) -> None:
        """Of a pair of ResourceManagers, make the one with this id (rm1, rm2) active."""
        # Without the flag the tool insists on asking the other one first, which may be dead.
        self._administer(RM_ADMIN, "-transitionToActive", "--forceactive", resourcemanager)

    def activate_namenode(self, namenode: str) -> None:
        """Of a pair of NameNodes, make the one with this id (nn1, nn2) active."""
        self._administer(HDFS_ADMIN, "-ns", NAMESERVICE, "-transitionToActive", "--forceactive", namenode)

    def make_zone(self, path: str, key: str) -> None:
        """Make an empty directory an encryption zone of a key that there is."""
        self._administer(CRYPTO_ADMIN, "-createZone", "-keyName", key, "-path", path)

    def decommission(self, hosts: Iterable[str], seconds: int) -> None:
        """Have the NodeManagers of these hosts leave, within `seconds`, and let all others in."""
        self.layout.excluded.write_text("".join(f"{host}\n" for host in hosts))
        self._administer(RM_ADMIN, "-refreshNodes", "-g", str(seconds), "-server")

    def _administer(self, tool: str, *arguments: str) -> None:
        """Hadoop's own tools for its administrators."""
        command = self._java.command("client", tool, *arguments)
        environment = self._java.environment()
        if self.state.settings.secure:
            # Our requests as this user, made while waiting, have left a ticket there.
            user = "yarn" if tool == RM_ADMIN else "hdfs"
            environment["KRB5CCNAME"] = self.layout.kerberos_environment(user)["KRB5CCNAME"]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ADMIN_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"{tool} {' '.join(arguments)} failed:\n{done.stdout[-2000:]}")

    def containers(self) -> list[Process]:
        """Live processes of YARN containers, known by the environment that every container is started with."""
        return list(with_environment(f"LOCAL_DIRS={self.layout.data}/nodemanager-".encode()))

    def stop_all(self) -> None:
        """End everything. NodeManagers take their containers with them, unless they were killed themselves."""
        stop(self.state.processes.values(), STOP_ALL_SECONDS)
        stop(self.containers(), 0)
        self.state.processes.clear()
        self.state.write(self.layout)

    @property
    def _java(self) -> Java:
        settings = self.state.settings
        return Java(resolve(settings.version, settings.extra_artefacts), self.layout, settings)

    def _formatted(self, namenode: str) -> bool:
        return (self.layout.data / namenode / "current" / "VERSION").is_file()

    def _format(self, namenodes: list[str]) -> None:
        first, *others = namenodes
        command = [*self._java.daemon(first), "-format", "-nonInteractive", "-force", "-clusterid", "tony"]
        log = self.layout.log(f"{first}-format")
        process = spawn(command, log=log, cwd=self.layout.root, env=self._java.environment())
        if not process.wait_gone(time.monotonic() + ADMIN_SECONDS):
            stop([process], STOP_SECONDS)
        if not self._formatted(first):
            raise ClusterError(f"the NameNode's disk could not be formatted:\n{_tail(log)}")
        for other in others:  # the twin begins with the same empty file system
            shutil.copytree(self.layout.data / first, self.layout.data / other)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

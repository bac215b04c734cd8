"""A real ZooKeeper, in which the parts of a federation find each other. Hadoop brings it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.hadoop.ports import free_ports
from tests.hadoop.processes import spawn, stop
from tests.hadoop.resolve import resolve
from tests.hadoop.settings import DEFAULT_VERSION, LOOPBACK
from tests.hadoop.tools import java_program
from tests.waiting import until

_SECONDS = 60.0


@contextmanager
def zookeeper(root: Path) -> Iterator[str]:
    """Run a ZooKeeper in an empty folder; its address."""
    (port,) = free_ports(1)
    jars = resolve(DEFAULT_VERSION) / "jars"
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [str(java_program()), "-Xmx128m", "-cp", f"{jars}/*", main, str(port), str(root / "data")]
    process = spawn(command, log=root / "log", cwd=root, env={})
    try:
        until(lambda: _listens(port), lambda: (root / "log").read_text()[-3000:], _SECONDS)
        yield f"{LOOPBACK}:{port}"
    finally:
        stop([process], 5)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False

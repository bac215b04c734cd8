"""Our own servers beside frameworks listen at the address that others know the node by, and at no other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tony_provider.runtime.sdk as sdk
from tests.waiting import until

OWN, ANOTHER = "127.0.0.7", "127.0.0.1"
SERVERS = {
    "tony_mpi": "import tony_mpi; tony_mpi.serve()",
    "tony_horovod": "import tony_horovod; tony_horovod.main()",
    "tony_xgboost": "import time, tony_wait; server = tony_wait.listening({port}); time.sleep(60)",
}


@contextmanager
def serving(program: str, **more: str) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind((OWN, 0))
        port: int = probe.getsockname()[1]
    env = {"PYTHONPATH": str(Path(sdk.__file__).parent), "PATH": os.environ["PATH"], "HOROVOD_SIZE": "2", **more}
    env |= {"TONY_PORT": str(port), "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port), "TONY_MPI_SECRET": "secret"}
    process = subprocess.Popen([sys.executable, "-c", program.format(port=port)], env=env)
    try:
        until(lambda: accepts(OWN, port), lambda: f"{process.poll()}")
        yield port
    finally:
        process.kill()
        process.wait()


def accepts(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=10):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("name", SERVERS)
def test_at_no_other_address(name: str) -> None:
    with serving(SERVERS[name], TONY_LISTEN_ADDRESS=OWN) as port:
        assert not accepts(ANOTHER, port)


def test_everywhere_where_no_address_is_known() -> None:
    with serving(SERVERS["tony_horovod"]) as port:
        assert accepts(ANOTHER, port)

"""Whom the secret of a local application is told: nobody but a server of the application's own user."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tony_provider.cluster.errors import MasterOutOfReach
from tony_provider.cluster.local.local_cluster import ask_master
from tony_provider.runtime.protocol import master_files

NOBODY = 65534
SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
print(connection.recv(4096).decode(), flush=True)
"""


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[str]]:
    """Listens at the port that its first line says, and says all that it is told."""
    process = subprocess.Popen(["/usr/bin/python3", "-c", SERVER], user=NOBODY, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user's")
def test_a_neighbour_who_has_the_port_is_told_nothing(tmp_path: Path, neighbour: subprocess.Popen[str]) -> None:
    assert neighbour.stdout is not None
    master_files.write_tracking_url(tmp_path, f"http://127.0.0.1:{neighbour.stdout.readline().strip()}/")
    master_files.make_tracking_secret(tmp_path)
    with pytest.raises(MasterOutOfReach, match="another user of this machine has its port"):
        ask_master(tmp_path, "status", 5)
    assert neighbour.stdout.readline() == "\n", "the end of the connection, and nothing before it"


def test_a_server_of_its_own_user_is_asked(tmp_path: Path) -> None:
    seen = []

    class Master(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"here")

    with http.server.HTTPServer(("127.0.0.1", 0), Master) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        master_files.write_tracking_url(tmp_path, f"http://127.0.0.1:{server.server_port}/")
        secret = master_files.make_tracking_secret(tmp_path)
        assert ask_master(tmp_path, "status", 10, is_text=True) == b"here"
        thread.join()
    assert seen == [f"Bearer {secret}"]

"""TensorBoard as a process of this machine."""

from __future__ import annotations

import http.client
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime import contract
from tony_provider.runtime.child_environment import absolute_entries, child_environment
from tony_provider.runtime.listeners import peer_users
from tony_provider.runtime.text import replaced

HOST = "127.0.0.1"
FIRST_PORT = 6006  # TensorBoard's own
LAST_PORT = 6105
_END_SECONDS = 5.0
_ANSWER_SECONDS = 5.0  # for one look whether it is there
_SAID = 2000  # bytes of its output in a message


class TensorBoardProblem(ClusterError):  # noqa: N818 - named for what it is
    """TensorBoard cannot run on this machine, or has ended. The message says what to do."""


def expect_tensorboard() -> None:
    """Raises TensorBoardProblem where it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise TensorBoardProblem(
            f"the package tensorboard is not installed here: {sys.executable} -m pip install tensorboard"
        )


def choose_port(wanted: int | None) -> int:
    """The port that was asked for, or the first free one. Raises TensorBoardProblem where there is none."""
    if wanted is not None and not 0 < wanted < 1 << 16:
        raise TensorBoardProblem(f"--port {wanted} is no port: from 1 to 65535")
    ports = range(FIRST_PORT, LAST_PORT + 1) if wanted is None else [wanted]
    for port in ports:
        if _is_free(port):
            return port
    raise TensorBoardProblem(f"{_ports(ports[0], ports[-1])} in use on {HOST}: choose another one with --port")


def _ports(first: int, last: int) -> str:
    return f"the port {first} is" if first == last else f"all ports from {first} to {last} are"


def _is_free(port: int) -> bool:
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as TensorBoard does
        try:
            own.bind((HOST, port))
        except OSError:
            return False
    return True


class TensorBoardServer:
    """TensorBoard over one directory, from ``start`` to ``stop``.

    It answers below a path that only the starter knows: others may have accounts on this machine.

    :param private: the command's directory, which TensorBoard removes where the command is killed. In it are
        ``directory``, what it draws, and ``own``, for what it writes itself.
    """

    def __init__(self, private: Path, directory: Path, own: Path, port: int, title: str) -> None:
        self._private = private
        self._directory = directory
        self._own = own
        self._port = port
        self._title = title
        self._path = f"/{secrets.token_urlsafe(16)}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}{self._path}/"

    def start(self) -> None:
        program = files("tony_provider.runtime.event_files") / "show_tensorboard.py"
        environment = {
            **child_environment(),  # TensorBoard and its plugins need no secret of this process
            "PYTHONPATH": absolute_entries(os.environ.get("PYTHONPATH", "")),
            contract.ENV_TENSORBOARD_DIR: str(self._directory),
            contract.ENV_TENSORBOARD_PATH: self._path,
            contract.ENV_PORT: str(self._port),
            contract.ENV_JOB_NAME: self._title,
            "TMPDIR": str(self._own),  # it says there that it runs, for everybody
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(program), str(self._private)],
                cwd=self._own,
                env=environment,
                stdin=subprocess.PIPE,  # it ends with the command, also where SIGKILL ends that one
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the command, which then ends this one
            )

    @property
    def answers(self) -> bool:
        """Whether it shows its page. Raises TensorBoardProblem when it has ended."""
        self.expect_running()
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.connect()
            if peer_users(connection.sock) - {os.getuid()}:  # before the path, which is a secret, is told
                raise TensorBoardProblem(
                    f"port {self._port} was taken by another user of this machine; choose another one"
                )
            connection.request("GET", f"{self._path}/")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def expect_running(self) -> None:
        """Raises TensorBoardProblem when it has ended, with what it said."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            said = replaced(self._output.read_bytes()[-_SAID:].decode("utf-8", "replace")).strip()
            raise TensorBoardProblem(f"TensorBoard has ended with exit code {code}:\n{said}")

    def stop(self) -> None:
        """End it. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def _output(self) -> Path:
        return self._own / "output.log"

"""Remote shell for MPI launchers: run commands in the containers of one job, over authenticated connections.

``python -m tony_mpi serve`` runs received commands in a container. ``run HOST COMMAND`` sends a command to a container.
``here COMMAND`` starts a program in the directory of its container.

Both ends of a connection send a nonce. Then each message has an HMAC, with the job's secret as the key, of both nonces
and of the sender, number and text of the message. Messages are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

_NONCE = 32  # bytes
_LENGTH = struct.Struct(">I")
_LARGEST = 1 << 20  # maximum bytes of a message


class NotAuthenticError(ConnectionError):
    """The other end of the connection does not know the secret, or a message was changed on the way."""


class Frames:
    """An authenticated connection. One thread may send while another one receives."""

    def __init__(self, connection: socket.socket, secret: bytes, *, server: bool) -> None:
        """Exchange nonces. Raises OSError, EOFError."""
        self._connection = connection
        own = os.urandom(_NONCE)
        connection.sendall(own)
        other = self._exactly(_NONCE)
        nonces = own + other if server else other + own
        self._key = hmac.new(secret, b"tony-frames" + nonces, hashlib.sha256).digest()
        self._names = (b"server", b"client") if server else (b"client", b"server")  # this end, the other end
        self._sent = self._received = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises OSError."""
        body = json.dumps(message).encode()
        proof = self._proof(self._names[0], self._sent, body)
        self._sent += 1
        self._connection.sendall(_LENGTH.pack(len(body)) + proof + body)

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raises EOFError at the end, OSError, NotAuthenticError."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _LARGEST:
            raise NotAuthenticError("a message is too long")
        proof = self._exactly(hashlib.sha256().digest_size)
        body = self._exactly(length)
        if not hmac.compare_digest(proof, self._proof(self._names[1], self._received, body)):
            raise NotAuthenticError("a message has no valid signature of this job")
        self._received += 1
        message: dict[str, Any] = json.loads(body)
        return message

    def _proof(self, sender: bytes, number: int, body: bytes) -> bytes:
        return hmac.new(self._key, sender + number.to_bytes(8, "big") + body, hashlib.sha256).digest()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._connection.recv(count - len(parts))
            if not part:
                raise EOFError("the other end has closed the connection")
            parts += part
        return bytes(parts)


WAIT_SECONDS = 900.0  # maximum wait for containers that start later, for example after a long restore
GRACE_SECONDS = 5.0  # time between SIGTERM and SIGKILL
_PAUSE = 0.2
_CHUNK = 1 << 16
_ANSWER_SECONDS = 30.0  # timeout for the first message of a connection
_DIRECTORY = "TONY_MPI_DIRECTORY"  # variable with the container's directory, for programs started by ``here``


def serve() -> None:
    """Run commands that processes of the same job send. Never returns."""
    with importlib.import_module("tony_wait").listening(int(os.environ["TONY_PORT"])) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_obey, args=(connection,), daemon=True).start()


def _obey(connection: socket.socket) -> None:
    with connection:
        try:
            connection.settimeout(_ANSWER_SECONDS)
            frames = Frames(connection, _secret(), server=True)
            command = str(frames.receive()["command"])
            connection.settimeout(None)
            _Command(command, frames).run()
        except (OSError, EOFError) as error:  # the caller has closed the connection, or does not belong to the job
            sys.stderr.write(f"tony_mpi: a connection was rejected or closed: {error}\n")


class _Command:
    """A command from a caller. It runs in a separate process group."""

    def __init__(self, command: str, frames: Frames) -> None:
        self._frames = frames
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            env={**os.environ, _DIRECTORY: str(Path.cwd())},
        )

    def run(self) -> None:
        """Wait until the command has ended. End the command if its caller closes the connection. Raises OSError."""
        threading.Thread(target=self._end_with_caller, daemon=True).start()
        try:
            self._tell()
            self._frames.send({"exit": self._process.wait()})
        except OSError:
            self._end()
            raise

    def _tell(self) -> None:
        with selectors.DefaultSelector() as outputs:
            for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
                if stream is not None:
                    outputs.register(stream, selectors.EVENT_READ, name)
            while outputs.get_map():
                for key, _ in outputs.select():
                    if part := os.read(key.fd, _CHUNK):
                        self._frames.send({key.data: b64encode(part).decode()})
                    else:
                        outputs.unregister(key.fileobj)

    def _end_with_caller(self) -> None:
        try:
            self._frames.receive()  # returns only at the end, because a caller sends nothing after its command
        except (OSError, EOFError):
            self._end()

    def _end(self) -> None:
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
            if self._process.poll() is not None:
                return
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, number)
                self._process.wait(seconds)


def run(host: str, command: str) -> int:
    """Run a command in a container, and return its exit code. Raises OSError, and EOFError if the container ends."""
    with _connected(*_address(host)) as connection:
        frames = Frames(connection, _secret(), server=False)
        frames.send({"command": command})
        while True:
            message = frames.receive()
            if "exit" in message:
                code = int(message["exit"])
                return code if code >= 0 else 128 - code
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
                if name in message:
                    stream.buffer.write(b64decode(message[name]))
                    stream.flush()


def _connected(host: str, port: int) -> socket.socket:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=10.0)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
        else:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection


def _address(host: str) -> tuple[str, int]:
    """Return the address of the container that the host file lists as ``host``, such as tony-worker-1.

    Raises LookupError.
    """
    cluster: dict[str, list[str]] = json.loads(Path(os.environ["TONY_CLUSTER_SPEC_FILE"]).read_text())
    for task_type, addresses in cluster.items():
        for index, address in enumerate(addresses):
            if host == f"tony-{task_type}-{index}":
                found: tuple[str, int] = importlib.import_module("tony_wait").parse_address(address)
                return found
    raise LookupError(f"this job has no container {host}")


def here(command: list[str]) -> None:
    """Replace this process by the program, in the directory of its container."""
    directory = os.environ[_DIRECTORY]
    os.chdir(directory)
    os.environ["PWD"] = directory
    os.execvp(command[0], command)  # noqa: S606 - a shell would split the arguments again


def main(arguments: list[str]) -> Any:
    """Return an exit code or an error message."""
    what, *rest = arguments
    if what == "serve":
        return serve()
    if what == "here":
        return here(rest)
    while rest and rest[0].startswith("-"):  # skip options of ssh, such as -x
        rest.pop(0)
    try:
        return run(rest[0], " ".join(rest[1:]))
    except (OSError, EOFError, LookupError) as error:
        return f"tony_mpi: {rest[0]}: {error}"


def _secret() -> bytes:
    return os.environ["TONY_MPI_SECRET"].encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

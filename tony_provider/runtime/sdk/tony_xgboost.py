"""XGBoost's collective in a tony job of the framework xgboost.

    import tony_xgboost

    with tony_xgboost.communicator():
        booster = xgboost.train(...)

Rank 0 runs XGBoost's tracker. The other ranks connect to TONY_RENDEZVOUS, where rank 0 sends the tracker's address. The
tracker gets a new port each time, because XGBoost cannot listen at a port that was in use a moment ago. XGBoost's ranks
equal the job's ranks. Outside a job, and in a job of one process, the process works alone.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

MEETING_SECONDS = 900.0  # time limit for all ranks to connect; some ranks may need long to restore
_PAUSE = 0.2
_ANSWER_SECONDS = 10.0  # timeout for the other end of a connection
_WORD = "rank"


@contextmanager
def communicator() -> Iterator[None]:
    """Enter XGBoost's ``CommunicatorContext`` with all ranks. Rank 0 leaves the context last.

    Raises TimeoutError if not all ranks connect within 15 minutes.
    """
    from xgboost import collective  # type: ignore[import-not-found,unused-ignore]

    rank, world_size = int(os.environ.get("TONY_RANK") or 0), int(os.environ.get("TONY_WORLD_SIZE") or 1)
    if world_size == 1:
        yield
        return
    tracker = _Tracker(world_size) if rank == 0 else None
    arguments = tracker.tell() if tracker else _ask(rank)
    # XGBoost sorts its ranks by these IDs as text, so pad them with zeros.
    with collective.CommunicatorContext(**arguments, dmlc_task_id=str(rank).zfill(len(str(world_size)))):
        yield
    if tracker:
        tracker.wait()


class _Tracker:
    """XGBoost's tracker in rank 0."""

    def __init__(self, world_size: int) -> None:
        from xgboost.tracker import RabitTracker  # type: ignore[import-not-found,unused-ignore]

        self._world_size = world_size
        self._host, self._port = _meeting_point()
        self._tracker: Any = RabitTracker(n_workers=world_size, host_ip=_address_of(self._host), sortby="task")

    def tell(self) -> dict[str, Any]:
        """Start the tracker and send its address to every other rank. Return the arguments for all ranks."""
        self._tracker.start()
        arguments: dict[str, Any] = self._tracker.worker_args()
        message = json.dumps(arguments).encode()
        missing = set(range(1, self._world_size))
        until = time.monotonic() + MEETING_SECONDS
        with importlib.import_module("tony_wait").listening(self._port) as server:
            server.settimeout(_PAUSE)
            while missing:
                if time.monotonic() > until:
                    came = self._world_size - len(missing)
                    raise TimeoutError(f"only {came} of {self._world_size} ranks have connected")
                try:
                    connection, _ = server.accept()
                except socket.timeout:
                    continue
                with connection:
                    missing.discard(_tell_rank(connection, message))
        return arguments

    def wait(self) -> None:
        """Wait until all ranks have left. Until then, they need the tracker, which ends with this process."""
        self._tracker.wait_for()


def _tell_rank(connection: socket.socket, message: bytes) -> int:
    """Send the arguments to a client. Return the client's rank, or -1 if no rank of the job has received them."""
    connection.settimeout(_ANSWER_SECONDS)
    try:
        with connection.makefile("rb") as stream:
            word, _, rank = stream.readline(64).decode("ascii", "replace").strip().partition(" ")
        if word != _WORD or not rank.isdecimal():
            return -1
        connection.sendall(message)
    except OSError:
        return -1  # the client retries
    return int(rank)


def _ask(rank: int) -> dict[str, Any]:
    host, port = _meeting_point()
    until = time.monotonic() + MEETING_SECONDS
    problem: Optional[Exception] = None
    while time.monotonic() < until:
        try:
            with socket.create_connection((host, port), timeout=10.0) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.sendall(f"{_WORD} {rank}\n".encode())
                with connection.makefile("rb") as stream:
                    message: dict[str, Any] = json.loads(stream.read())
                    return message
        except (OSError, ValueError) as error:
            problem = error
            time.sleep(_PAUSE)
    raise TimeoutError(f"rank 0 does not send the address of its tracker at {host}:{port}: {problem}")


def _meeting_point() -> tuple[str, int]:
    found: tuple[str, int] = importlib.import_module("tony_wait").parse_address(os.environ["TONY_RENDEZVOUS"])
    return found


def _address_of(host: str) -> str:
    """Return the numeric address of a host, which XGBoost requires."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])

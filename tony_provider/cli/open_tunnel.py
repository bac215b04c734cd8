"""``airflow tony tunnel``: reach a port of a job's task from this machine.

``airflow tony notebook`` and ``tensorboard`` also use the functions that check a local port and open a browser.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import webbrowser
from argparse import Namespace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

import attrs

from tony_provider.cli.command import (
    NotFound,
    command,
    expect_directory,
    running_job,
    say,
    until_interrupted,
)
from tony_provider.cluster.task_tunnel import HOST
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common.network import HIGHEST_PORT, peer_users


def expect_local_port(port: int) -> None:
    """Exit with a message if ``port`` is invalid or in use. 0 means any free port."""
    if not 0 <= port <= HIGHEST_PORT:
        raise SystemExit(f"--local-port {port} is not a port: use 1 to {HIGHEST_PORT}")
    if (error := bind_error(port)) is not None:
        raise SystemExit(port_in_use_message(port, error)) from error


def bind_error(port: int) -> OSError | None:
    """Return the error of binding a local port, or None if the port is free."""
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like tunnels and TensorBoard
        try:
            own.bind((HOST, port))
        except OSError as error:
            return error
    return None


def port_in_use_message(port: int, error: OSError) -> str:
    """Return the message for a port that is in use."""
    return f"port {port} of this machine is not available: {error}"


_LOOK = 0.5  # seconds between two checks whether the browser has connected
_SECONDS = 120.0  # time limit for the browser


def open_browser(url: str) -> None:
    """Open a browser at ``url`` without the URL on a command line, which all users of this machine could read.

    The browser opens a local server, which redirects to ``url``. The server redirects only once, and answers only
    processes of this user.
    """
    door = _Door(url)
    threading.Thread(target=door.keep, name="browser", daemon=True).start()
    webbrowser.open(f"http://{HOST}:{door.server_address[1]}/")


class _Door(ThreadingTCPServer):
    daemon_threads = True
    timeout = _LOOK

    def __init__(self, url: str) -> None:
        super().__init__((HOST, 0), _Doorman)
        self.url = url
        self.is_passed = threading.Event()

    def keep(self) -> None:
        """Serve until a browser has connected, or the time limit is over."""
        until = time.monotonic() + _SECONDS
        with self:
            while not self.is_passed.is_set() and time.monotonic() < until:
                self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return peer_users(request) == {os.getuid()}


class _Doorman(BaseHTTPRequestHandler):
    server: _Door
    timeout = _SECONDS  # seconds until a connection without data is closed

    def do_GET(self) -> None:
        if self.path != "/" or self.server.is_passed.is_set():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.server.is_passed.set()
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", self.server.url)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing, since the command owns the terminal."""


_PERIOD = 0.2  # seconds between two checks for the end
_TARGET = re.compile(r"(?P<task>[^:]+:\d+)(:(?P<port>\d+))?")


@command
def tunnel(args: Namespace) -> None:
    """Forward connections until Ctrl-C, a signal, or the end of the application."""
    target = Target.parse(args.task)
    expect_local_port(args.local_port)
    with running_job(args, "; a tunnel needs a running job") as job:
        expect_directory(job)
        _expect_task(job, target.task)
        with until_interrupted() as over:
            try:
                with job.tunnel(target.task, target.port, local_port=args.local_port, report=say, over=over) as way:
                    if not over.is_set():
                        say(f"{HOST}:{way.port} forwards to {target}\nCtrl-C ends it")
                    while not over.is_set() and not way.wait(_PERIOD):
                        pass
            except OSError as error:
                raise SystemExit(port_in_use_message(args.local_port, error)) from error


@attrs.frozen
class Target:
    """The target of a tunnel: a task and its port."""

    task: str  # such as worker:0
    port: int = 0  # 0 for the first port assigned to the task

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse a target. Exits with a message if ``text`` is invalid."""
        found = _TARGET.fullmatch(text)
        port = int(found["port"] or 0) if found else 0
        if found is None or port > HIGHEST_PORT or found["port"] == "0":
            raise SystemExit(f"{text!r}: name a task, and optionally its port, such as worker:0 or worker:0:20888")
        return cls(found["task"], port)

    def __str__(self) -> str:
        return f"port {self.port} of {self.task}" if self.port else f"the port of {self.task} (TONY_PORT)"


def _expect_task(job: TonyJob, task: str) -> None:
    status = job.status()
    if status is not None and task not in (known := [each.name for each in status.tasks]):
        raise NotFound(f"{job} has no task {task}; its tasks are {', '.join(known[:10])}")

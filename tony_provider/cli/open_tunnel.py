"""A port of this machine that somebody has named, looked at before anything is started for it."""

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

from tony_provider.cli.command import NotFound, application_of, command, hook_of, identity_of, say, until_interrupted
from tony_provider.cluster.task_tunnel import HOST
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.network import HIGHEST_PORT, peer_users


def expect_local_port(port: int) -> None:
    """Exits with a message for one that is none, or that cannot be had now; 0 is any that is free."""
    if not 0 <= port <= HIGHEST_PORT:
        raise SystemExit(f"--local-port {port} is no port: from 1 to {HIGHEST_PORT}")
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the tunnel does
        try:
            own.bind((HOST, port))
        except OSError as error:
            raise SystemExit(cannot_be_had(port, error)) from error


def cannot_be_had(port: int, error: OSError) -> str:
    """The message for a port that somebody else has, or may have."""
    return f"port {port} of this machine cannot be had: {error}"


_HOST = "127.0.0.1"
_LOOK = 0.5  # seconds between two looks whether the browser has come
_SECONDS = 120.0  # that it may take to come


def open_browser(url: str) -> None:
    """Have a browser show this address, which is on no command line: everybody on this machine could read it there.

    What is there leads on to it, once, and only processes of this user.
    """
    door = _Door(url)
    threading.Thread(target=door.keep, name="browser", daemon=True).start()
    webbrowser.open(f"http://{_HOST}:{door.server_address[1]}/")


class _Door(ThreadingTCPServer):
    daemon_threads = True
    timeout = _LOOK

    def __init__(self, url: str) -> None:
        super().__init__((_HOST, 0), _Doorman)
        self.url = url
        self.is_passed = threading.Event()

    def keep(self) -> None:
        """Until somebody has come in, or nobody has for long."""
        until = time.monotonic() + _SECONDS
        with self:
            while not self.is_passed.is_set() and time.monotonic() < until:
                self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return peer_users(request) == {os.getuid()}


class _Doorman(BaseHTTPRequestHandler):
    server: _Door
    timeout = _SECONDS  # of a connection by which nothing comes

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
        """It has the terminal to itself."""


_PERIOD = 0.2  # seconds between two looks at what goes on
_TARGET = re.compile(r"(?P<task>[^:]+:\d+)(:(?P<port>\d+))?")


@command
def tunnel(args: Namespace) -> None:
    """The command. Passes connections on until it is ended by Ctrl-C or a signal, or the application ends."""
    target = Target.parse(args.task)
    expect_local_port(args.local_port)
    with hook_of(args) as hook:
        found = application_of(hook, args)
        identity = identity_of(hook, found)
        if found.application is None or found.application.is_final:
            raise NotFound(f"{found.application_id} has ended: there is nothing to lead to")
        _expect_task(hook, identity, found.application_id, target.task)
        with until_interrupted() as over:
            try:
                opened = hook.tunnel(
                    identity,
                    found.application_id,
                    target.task,
                    target.port,
                    local_port=args.local_port,
                    tell=say,
                    over=over,
                )
                with opened as way:
                    if not over.is_set():
                        say(f"{HOST}:{way.port} leads to {target}\nCtrl-C ends it")
                    while not over.is_set() and not way.wait(_PERIOD):
                        pass
            except OSError as error:
                raise SystemExit(cannot_be_had(args.local_port, error)) from error


@attrs.frozen
class Target:
    """What a tunnel leads to."""

    task: str  # such as worker:0
    port: int = 0  # 0: the first that the task was given

    @classmethod
    def parse(cls, text: str) -> Target:
        """Exits with a message for what is none."""
        found = _TARGET.fullmatch(text)
        port = int(found["port"] or 0) if found else 0
        if found is None or port > HIGHEST_PORT or found["port"] == "0":
            raise SystemExit(f"{text!r}: name a task, and perhaps its port, such as worker:0 or worker:0:8888")
        return cls(found["task"], port)

    def __str__(self) -> str:
        return f"port {self.port} of {self.task}" if self.port else f"the port of {self.task} (TONY_PORT)"


def _expect_task(hook: TonyHook, identity: Identity, application_id: str, task: str) -> None:
    status = hook.job_status(identity, application_id)
    if status is not None and task not in (known := [each.name for each in status.tasks]):
        raise NotFound(f"{application_id} has no task {task}; there are {', '.join(known[:10])}")

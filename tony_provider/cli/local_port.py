"""A port of this machine that somebody has named, looked at before anything is started for it."""

from __future__ import annotations

import socket

from tony_provider.cluster.tunnel.tunnel import HOST
from tony_provider.runtime.address import HIGHEST_PORT


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

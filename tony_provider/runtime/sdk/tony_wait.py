"""Wait until a process listens: ``python -m tony_wait HOST PORT``. For programs that would give up too early.

The module also has functions with which our own programs listen, and parse the addresses of listening processes.
"""

from __future__ import annotations

import os
import socket
import sys
import time

SECONDS = 900.0  # time limit; the other task may need long to restore its checkpoint
_PAUSE = 0.2


def main(host: str, port: int, seconds: float = SECONDS) -> str:
    """Wait until a process listens. Return an empty string, or an error message after ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=5.0).close()
        except OSError as error:
            if time.monotonic() > until:
                return f"no process listens at {host}:{port} after {seconds:g} s: {error}"
            time.sleep(_PAUSE)
        else:
            return ""


def parse_address(address: str) -> tuple[str, int]:
    """Return the host, without the brackets of an IPv6 address, and the port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listening(port: int) -> socket.socket:
    """Listen at TONY_LISTEN_ADDRESS, by which other nodes know this machine. If unset, listen at all addresses."""
    if address := os.environ.get("TONY_LISTEN_ADDRESS"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=1024)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])) or 0)

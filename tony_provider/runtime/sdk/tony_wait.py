"""Wait until a process listens: ``python -m tony_wait HOST PORT``, before a program that would give up too soon."""

from __future__ import annotations

import socket
import sys
import time

SECONDS = 900.0  # another task may restore its checkpoint for longer than this one
_PAUSE = 0.2


def main(host: str, port: int, seconds: float = SECONDS) -> str:
    """Return an error message, or an empty string when something listens."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])) or 0)

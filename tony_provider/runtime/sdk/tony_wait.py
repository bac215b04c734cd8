"""Wait until a process listens: ``python -m tony_wait HOST PORT``. For programs that would give up too early."""

from __future__ import annotations

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])) or 0)

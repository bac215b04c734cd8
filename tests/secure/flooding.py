"""Connections by the hundred to a master's ports, from addresses of nodes, and how long its owner waits meanwhile."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

from tests.secure.field import Field
from tests.secure.victim import Victim

SOURCES = tuple(f"127.0.1.{number}" for number in range(11, 15))


@contextlib.contextmanager
def connections(address: tuple[str, int], number: int, said: bytes = b"") -> Iterator[int]:
    """As many as can be had, from several addresses; how many there are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as held:
        opened = 0
        for count in range(number):
            end = held.enter_context(socket.socket())
            end.bind((SOURCES[count % len(SOURCES)], 0))
            end.settimeout(10)
            try:
                end.connect(address)
                end.sendall(said)
            except OSError:
                continue  # turned away: what is wanted
            opened += 1
        yield opened


def status_seconds(field: Field, victim: Victim) -> float:
    """alice's own look, through the proxy: how long it takes."""
    begun = time.monotonic()
    answer = field.visitor("alice").ask("GET", f"{victim.page}status")
    field.expect(answer.code == 200 and '"RUNNING"' in answer.text, f"alice sees {answer.code} {answer.first}")
    return time.monotonic() - begun

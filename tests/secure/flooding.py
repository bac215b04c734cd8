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
HALF = 256
_REQUEST = b"GET /status HTTP/1.1\r\nHost: master\r\nCookie: proxy-user=alice\r\nX-Half: "
_HANDSHAKE = bytes.fromhex("16030101fc010001f80303") + bytes(32)  # TLS's first message, which says that it is longer


def half_said(field: Field) -> str:
    """At the page of alice's job, as it is served there: requests of http that do not end, or handshakes of https."""
    victim, https = field.victim(), field.hadoop.settings.masters_https != "NONE"
    with connections(victim.ports()["web"], HALF, _HANDSHAKE if https else _REQUEST) as opened:
        seconds = status_seconds(field, victim)
    field.cost = f"status within {seconds:.1f} s"
    what = "handshakes" if https else "requests"
    return f"{opened} half {what}; alice sees page and status through the proxy meanwhile"


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

"""Tunnels of a person who may modify one job of alice's, to servers of her other jobs on the same node."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim
from tony_provider.cluster.task_tunnel import HOST, MasterOfTunnel, TaskTunnel
from tony_provider.cluster.token_refresh import read_master_contact

_SERVER = f"({sys.executable} -m http.server --bind 127.0.0.1 $TONY_PORT & echo serves $TONY_PORT)"
_SECONDS = 60.0


@row("other-jobs-server", "as a person who may modify one job of alice's: a tunnel from it to another job's server")
def other_jobs_server(field: Field) -> str:
    """Both jobs run as alice, and all nodes here are one machine: each reaches the loopback ports of the other."""
    other = field.submit_victim(prelude=_SERVER, memory="256MiB")
    his = field.submit_victim(prelude=_SERVER, memory="256MiB", acls={"modify": {"users": ["bob"]}})
    for victim in (other, his):
        victim.until_running()
    ports = [_port(victim) for victim in (his, other)]
    about = read_master_contact(his.job.hook.storage(), his.job.directory)  # no secret: the master's certificate
    with field.acting_as("bob") as place:
        cluster = place.hook().get_conn()

        def page(port: int) -> str:
            news: list[str] = []
            with TaskTunnel(
                MasterOfTunnel(cluster, his.id, about.authority), "worker:0", port, report=news.append
            ) as way:
                return _page(way.port) or "; ".join(news)

        own, foreign = map(page, ports)
    field.expect(own.startswith("HTTP/1.0 200"), f"the server of the job that he may modify: {own[:200]}")
    field.expect("outside of this task's container" in foreign, f"the other job's server: {foreign[:200]}")
    return f"its own server: {own[:12]}; the other job's: {foreign[:90]}"


def _port(victim: Victim) -> int:
    def said() -> list[str]:
        return [line for line in victim.job.output("worker:0").splitlines() if line.startswith("serves ")]

    return int(victim.until(said, "its server")[0].split()[1])


def _page(port: int) -> str:
    with socket.create_connection((HOST, port), _SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(1000).decode()
    return ""

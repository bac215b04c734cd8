"""A real application master over a cluster that is none, for `benchmarks.scale`.

`python -m benchmarks.scale_master DIRECTORY ATTEMPT SOCKET…` runs in a process of its own, so that its memory is its
own. What stands in for YARN grants every container, and has them on the nodes behind the sockets (see `scale_nodes`).
Every quarter of a second a line in ``DIRECTORY/probe.jsonl`` tells how late the event loop was at worst.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale_nodes import host_of
from tony_provider.runtime import application
from tony_provider.runtime.am import message_limits
from tony_provider.runtime.am.lifecycle import MasterContext, serve
from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Background,
    Completed,
    Container,
    ContainerExit,
    ContainerRequest,
    Event,
    EventQueue,
    ExitReason,
    Launch,
    Registered,
    ResourceManager,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import LocalStorage

PROBE_FILE = "probe.jsonl"
_GRANTED_AT_ONCE = 500  # containers in one answer, as a large cluster's scheduler gives them
_GRANT_EVERY = 0.05  # seconds
_PROBE = 0.01  # seconds between two looks at the clock
_PROBE_LINE = 0.25
_MOST_LINE = 1 << 24  # bytes


class StandInResourceManager(ResourceManager):
    """Stands in for YARN: has room for everything, and forgets nothing between two application masters."""

    notice = 0.25

    def __init__(self, application_id: str, attempt: int, sockets: Sequence[str]) -> None:
        self._prefix = f"{application_id.replace('application', 'container', 1)}_{attempt:02}_"
        self._sockets = sockets
        self._nodes: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._number = 1
        self._of: dict[str, int] = {}  # container -> which of the nodes' processes has it
        self._wanted: dict[int, ContainerRequest] = {}
        self._events = EventQueue()
        self._background = Background(self._events.fail)

    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        found: list[Container] = []
        for number, path in enumerate(self._sockets):
            reader, writer = await asyncio.open_unix_connection(path, limit=_MOST_LINE)
            self._nodes.append((reader, writer))
            self._tell(number, order="list")
            for container, node in json.loads(await reader.readline()):
                found.append(Container(container, node))
                self._of[container] = number
            self._background.spawn(self._listen(reader))
        self._background.spawn(self._grant())
        return Registered(largest=None, containers=found)

    def request(self, requests: Sequence[ContainerRequest]) -> None:
        self._wanted.update((request.key, request) for request in requests)

    def cancel(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._wanted.pop(key, None)

    def release(self, container_ids: Sequence[str]) -> None:
        for id in container_ids:
            if id in self._of:
                self._tell(self._of[id], order="release", container=id)

    def avoid(self, nodes: Sequence[str]) -> None:
        """There are others."""

    def look_for_room(self, request: ContainerRequest, most: int) -> None:
        """No job of the benchmark takes what there is to spare."""

    async def launch(self, container: Container, launch: Launch) -> None:
        number = self._of[container.id] = int(container.id.rpartition("_")[2]) % len(self._nodes)
        token = Credentials.from_bytes(launch.credentials).secrets[contract.SECRET_TASK_TOKEN].decode()
        self._tell(
            number,
            order="start",
            container=container.id,
            node=container.node,
            task=launch.env[contract.ENV_TASK],
            attempt=int(launch.env[contract.ENV_TASK_ATTEMPT]),
            master=launch.env[contract.ENV_AM_ADDRESS],
            token=token,
        )
        await self._nodes[number][1].drain()

    def events(self) -> AsyncIterator[Event]:
        return self._events.__aiter__()

    def set_progress(self, progress: float) -> None:
        """Nobody looks."""

    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        """Nobody looks."""

    async def close(self) -> None:
        self._events.close()
        await self._background.close()
        for _, writer in self._nodes:
            writer.close()

    def _tell(self, number: int, **order: Any) -> None:
        self._nodes[number][1].write(json.dumps(order).encode() + b"\n")

    async def _grant(self) -> None:
        while True:
            await asyncio.sleep(_GRANT_EVERY)
            for key in list(self._wanted)[:_GRANTED_AT_ONCE]:
                del self._wanted[key]
                self._number += 1
                node = f"{host_of(self._number)}:45454"
                self._events.put(Allocated(key, Container(f"{self._prefix}{self._number:06}", node)))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            said = json.loads(line)
            self._of.pop(said["completed"], None)
            self._events.put(Completed(said["completed"], ContainerExit(ExitReason.EXITED, said["status"])))


async def probe(path: Path) -> None:
    """How much later than asked for the event loop came back."""
    loop = asyncio.get_running_loop()
    worst, written = 0.0, loop.time()
    with path.open("a", buffering=1) as file:
        while True:
            before = loop.time()
            await asyncio.sleep(_PROBE)
            now = loop.time()
            worst = max(worst, now - before - _PROBE)
            if now - written >= _PROBE_LINE:
                file.write(json.dumps({"at": time.monotonic(), "late": worst}) + "\n")
                worst, written = 0.0, now


async def main(directory: Path, attempt: int, sockets: list[str]) -> None:
    credentials = Credentials.read_file(directory / "container_tokens")
    description = application.read_description(credentials.secrets)
    message_limits.raise_open_files_limit(description.job.size)
    context = MasterContext(description, credentials, "127.0.0.1", attempt)
    manager = StandInResourceManager(description.application_id, attempt, sockets)
    probing = asyncio.ensure_future(probe(directory / PROBE_FILE))
    try:
        await serve(context, LocalStorage(), manager)
    finally:
        probing.cancel()
        await manager.close()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

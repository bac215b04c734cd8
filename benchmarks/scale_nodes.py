"""Nodes of a cluster that is none: many simulated executors in one process, for `benchmarks.scale`.

The stream of each is the real one (``executor.link.Link``: TLS, proofs, retries, the way to a new master); what it
runs is nothing. It says at once what a real one says in time.

`python -m benchmarks.scale_nodes SOCKET DIRECTORY` serves on a Unix socket, a line of JSON for each order: the stand-in
ResourceManager's (``start``, ``release``, ``list``) and the benchmark's (``count``, ``fail``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from tony_provider.runtime import application
from tony_provider.runtime.am import message_limits
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.executor_container import ContainerCredentials, ExecutorContainer
from tony_provider.runtime.executor.master_link import MasterLink, MasterLinkError, MasterLocator
from tony_provider.runtime.executor.start_context import StartOrder
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.storage import LocalStorage

log = logging.getLogger(__name__)

EVERY_TASK = "*"
TASKS_PER_NODE = 20
_MOST_LINE = 1 << 24  # bytes


def host_of(number: int) -> str:
    """As long as such names are."""
    return f"node{number // TASKS_PER_NODE:04}.cluster.example.com"


class Executor:
    def __init__(
        self, container: ExecutorContainer, storage: LocalStorage, check: Callable[[tony_pb2.Rendezvous], None]
    ):
        self.container = container
        self.generation = self.start = self.attempt = 0
        self.running = False
        self._port = random.randint(20000, 31999)
        self._where = MasterLocator(container, storage)
        self._link = MasterLink(container, self._where, self._greeting, self._handle)
        self._check = check
        self._beat_seconds = 3.0
        self._step = 0

    async def run(self) -> None:
        beating = asyncio.ensure_future(self._beat())
        try:
            await self._link.run()
        finally:
            beating.cancel()

    def fail(self) -> None:
        """Its user process ends."""
        self._ended(exit_code=1, output_tail="Traceback (most recent call last):\nValueError: a benchmark\n")

    def _greeting(self) -> list[tony_pb2.FromExecutor]:
        registration = tony_pb2.Registration(
            host=self.container.host,
            ports={MAIN_PORT: self._port},
            node=self.container.node,
            python="3.11",
            pid=1,
            generation=self.generation,
            start=self.start,
        )
        started = [self._started()] if self.running else []
        return [tony_pb2.FromExecutor(registration=registration), *started]

    def _started(self) -> tony_pb2.FromExecutor:
        return tony_pb2.FromExecutor(
            started=tony_pb2.ProcessStarted(generation=self.generation, start=self.start, pid=2)
        )

    def _handle(self, message: tony_pb2.ToExecutor) -> None:
        kind = message.WhichOneof("kind")
        if kind == "welcome":
            self.attempt = message.welcome.am_attempt
            self._where.record_attempt(self.attempt)
            self._beat_seconds = message.welcome.heartbeat_seconds
        elif kind == "rendezvous" and message.rendezvous.start > self.start:
            self._check(message.rendezvous)
            self.generation, self.start = message.rendezvous.generation, message.rendezvous.start
            self.running = True
            self._link.send(self._started())
        elif kind == "stop" and message.stop.start == self.start and self.running:
            self._ended(stopped=True, signal=15)
        elif kind == "shutdown":
            if self.running:
                self._ended(stopped=True, signal=15)
            self._link.finish()

    def _ended(self, **how: Any) -> None:
        self.running = False
        number: dict[str, Any] = {"generation": self.generation, "start": self.start}
        self._link.send(tony_pb2.FromExecutor(exited=tony_pb2.ProcessExited(**number, **how)))
        self._link.send(tony_pb2.FromExecutor(settled=tony_pb2.Settled(**number)))

    async def _beat(self) -> None:
        await asyncio.sleep(random.uniform(0, self._beat_seconds))
        while True:
            self._step += 1
            progress = tony_pb2.Progress(step=self._step, total_steps=10**6, steps_per_second=1.0)
            progress.metrics.update(loss=1 / self._step, accuracy=0.5)
            beat = tony_pb2.Heartbeat(rss_bytes=1 << 30, cpu_percent=99.5, progress=progress, activity="running")
            if self._link.is_idle:
                self._link.send(tony_pb2.FromExecutor(heartbeat=beat))
            await asyncio.sleep(self._beat_seconds)


@attrs.define(eq=False)
class Nodes:
    description: ApplicationDescription
    credentials: ContainerCredentials
    storage: LocalStorage = attrs.field(factory=LocalStorage)
    _reports: dict[str, Executor] = attrs.field(factory=dict)  # by container
    _running: dict[str, asyncio.Future[None]] = attrs.field(factory=dict)
    _masters: set[asyncio.StreamWriter] = attrs.field(factory=set)  # who is to hear of completions
    _checked: set[bytes] = attrs.field(factory=set)

    async def serve(self, path: Path) -> None:
        server = await asyncio.start_unix_server(self._connection, path, limit=_MOST_LINE)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = self._obey(json.loads(line), writer)
                if answer is not None:
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except ConnectionError:
            pass  # it has gone
        finally:
            self._masters.discard(writer)
            writer.close()

    def _obey(self, order: dict[str, Any], writer: asyncio.StreamWriter) -> Any:
        kind = order["order"]
        if kind == "start":
            self._start(order)
        elif kind == "release":
            if (running := self._running.get(order["container"])) is not None:
                running.cancel()
        elif kind == "list":
            self._masters.add(writer)
            return [[id, each.container.node] for id, each in self._reports.items()]
        elif kind == "fail":
            for each in self._reports.values():
                if order["task"] in (each.container.identity.task, EVERY_TASK):
                    each.fail()
        elif kind == "count":
            return {
                "executors": len(self._reports),
                "attempts": Counter(each.attempt for each in self._reports.values()),
                "generations": Counter(each.generation for each in self._reports.values() if each.running),
                "starts": Counter(each.start for each in self._reports.values() if each.running),
            }
        return None

    def _start(self, order: dict[str, Any]) -> None:
        task, id = order["task"], order["container"]
        host, number = order["node"].partition(":")[0], int(task.partition(":")[2])
        container = ExecutorContainer(
            description=self.description,
            credentials=self.credentials,
            token=order["token"],
            identity=TaskIdentity(self.description.application_id, id, task, order["attempt"]),
            task_type=task.partition(":")[0],
            index=number,
            master=order["master"],
            host=host,
            node=order["node"],
            directory=Path("/nonexistent"),
            log_dir=Path("/nonexistent"),
            environ={},
        )
        executor = self._reports[id] = Executor(container, self.storage, self._check)
        running = self._running[id] = asyncio.ensure_future(executor.run())
        running.add_done_callback(lambda running: self._ended(id, running))

    def _ended(self, id: str, running: asyncio.Future[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error and not isinstance(error, MasterLinkError):
            log.error("an executor has failed", exc_info=error)
        elif error:
            log.warning("%s: %s", id, error)
        del self._reports[id], self._running[id]
        for writer in self._masters:
            writer.write(json.dumps({"completed": id, "status": 1 if error else 0}).encode() + b"\n")

    def _check(self, rendezvous: tony_pb2.Rendezvous) -> None:
        """Everybody's addresses must be there; the same bytes are looked at once."""
        digest = hashlib.sha256(rendezvous.cluster).digest()
        if digest not in self._checked:
            self._checked.add(digest)
            tasks = StartOrder.of_message(rendezvous).cluster.tasks
            assert len(tasks) == self.description.job.size
            log.warning("%d bytes of addresses", len(rendezvous.cluster))


async def main(path: Path, directory: Path) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    credentials = Credentials.read_file(directory / "container_tokens")
    description = application.read_description(credentials.secrets)
    message_limits.raise_open_files_limit(description.job.size)
    handed_on = (
        contract.SECRET_CA,
        contract.SECRET_CLIENT_CERTIFICATE,
        contract.SECRET_CLIENT_KEY,
        contract.SECRET_ADDRESS_KEY,
    )
    secrets = {name: credentials.secrets[name] for name in handed_on}
    await Nodes(description, ContainerCredentials(Credentials(secrets=secrets))).serve(path)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.certificates import make_certificates
from tests.runtime.executor.containers import APPLICATION, KEY, ContainerDirectory, ExecutorProcess, job, until
from tests.runtime.executor.master import Master, address, serving
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol import tony_pb2


@attrs.define(eq=False)
class Running:
    """An executor that has registered."""

    master: Master
    executor: ExecutorProcess
    container: ContainerDirectory
    port: int
    _secrets: dict[str, bytes]
    _serving: AsyncExitStack  # its master
    _orders: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    async def begin(self, generation: int = 1, **more: Any) -> None:
        """The rendezvous of two workers; ``more`` as in the protocol."""
        registration = await self.master.first("registration")
        own = registration.ports[MAIN_PORT]
        self.master.rendezvous(
            address("worker", 0, own), address("worker", 1, 20001, host="10.0.0.2"), generation=generation, **more
        )

    async def lose_master(self) -> None:
        await self._serving.aclose()

    async def meet(self, master: Master) -> None:
        """Another one at the address of the one that it lost."""
        await self._serving.enter_async_context(serving(master, self._secrets, self.port))
        self.master = master

    def order(self, text: str) -> None:
        """For a ``trainer``."""
        name = f"order-{next(self._orders):03}"
        directory = self.container.directory
        (directory / f".{name}").write_text(text)
        (directory / f".{name}").rename(directory / name)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until(condition, what)

    async def until_there(self, name: str) -> None:
        """A file in the container's directory."""
        await until((self.container.directory / name).exists, f"{name} is there")

    async def until_no_trouble(self) -> None:
        """Wait for a new heartbeat that reports none."""
        seen = len(self.master.received)
        await until(
            lambda: any(
                message.WhichOneof("kind") == "heartbeat" and not message.heartbeat.trouble
                for message in self.master.received[seen:]
            ),
            "a heartbeat without trouble",
        )

    @property
    def log(self) -> str:
        """The log of the ended executor, which it has sent, or stored itself."""
        sent = [each.last_words.output for each in self.master.received if each.WhichOneof("kind") == "last_words"]
        return sent[-1].decode() if sent else self.container.stored("logs/worker-0.log")

    async def end(self) -> int:
        """Shut it down; returns the executor's exit code."""
        self.master.shutdown()
        return await self.executor.wait()


Launch = Callable[..., Awaitable[Running]]


@pytest.fixture(scope="session")
def secrets() -> dict[str, bytes]:
    return make_certificates(APPLICATION)


@pytest.fixture
async def launch(tmp_path: Path, secrets: dict[str, bytes]) -> AsyncIterator[Launch]:
    """``await launch("command")`` gives a running executor, and takes away what is left of it."""
    async with AsyncExitStack() as stack:

        async def start(
            command: str | JobSpec,
            *,
            below: Path = tmp_path,
            launcher: Sequence[str] = (),
            heartbeat_seconds: float = 1,
            **container: object,
        ) -> Running:
            spec = job(command) if isinstance(command, str) else command
            directory = ContainerDirectory(below, secrets, spec, **container)  # type: ignore[arg-type]
            directory.prepare()
            welcome = tony_pb2.Welcome(am_attempt=1, heartbeat_seconds=heartbeat_seconds)
            master = Master(APPLICATION, KEY, welcome=welcome, chain=directory.chain_dir)
            served = await stack.enter_async_context(AsyncExitStack())
            port = await served.enter_async_context(serving(master, secrets))
            executor = await ExecutorProcess.start(directory, port, launcher=launcher)
            stack.push_async_callback(executor.clean_up)
            return Running(master, executor, directory, port, secrets, served)

        yield start

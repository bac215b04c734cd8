"""An application master that dies, and the next one that the executors find."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.runtime.executor.containers import APPLICATION, KEY, ContainerDirectory, ExecutorProcess, is_alive, job
from tests.runtime.executor.master import Master, address, serving
from tests.runtime.executor.test_mirror import COMMAND
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol import master_files, tony_pb2
from tony_provider.runtime.storage import LocalStorage


def move(container: ContainerDirectory, port: int, *, attempt: int = 2, key: bytes = KEY) -> None:
    """As the application master does when it has registered."""
    master_files.write_master_address(
        LocalStorage(), f"file://{container.application_dir}", Address("127.0.0.1", port), attempt, key
    )


def order(container: ContainerDirectory, text: str) -> None:
    (container.directory / ".order").write_text(text)
    (container.directory / ".order").rename(container.directory / "order-1")


async def lose_the_first_master(
    stack: AsyncExitStack, container: ContainerDirectory, secrets: dict[str, bytes], begin: str = ""
) -> tuple[ExecutorProcess, int]:
    """An executor whose process runs, and whose master has gone; and the number of that process."""
    container.prepare()
    master = Master(APPLICATION, KEY, chain=container.chain_dir)
    async with serving(master, secrets) as port:
        executor = await ExecutorProcess.start(container, port)
        stack.push_async_callback(executor.clean_up)
        registration = await master.first("registration")
        assert (registration.generation, registration.start) == (0, 0)
        own = address("worker", 0, registration.ports["main"])
        master.rendezvous(own, address("worker", 1, 20001), generation=3, start=7)
        pid = (await master.first("started")).pid
        if begin:
            order(container, begin)
            await master.first("uploaded")
    return executor, pid


async def test_the_next_master_is_found_by_its_file(tmp_path: Path, secrets: dict[str, bytes]) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(COMMAND))
    async with AsyncExitStack() as stack:
        executor, pid = await lose_the_first_master(stack, container, secrets, "save 50")
        second = Master(APPLICATION, KEY, welcome=tony_pb2.Welcome(am_attempt=2, heartbeat_seconds=1))
        move(container, await stack.enter_async_context(serving(second, secrets)))
        registration = await second.first("registration")
        assert (registration.generation, registration.start) == (3, 7)
        assert (await second.first("started")).pid == pid
        asked = await second.uploaded(50)  # again: the first master did not answer
        assert (asked.generation, asked.start) == (3, 7)
        second.answer(asked)
        assert is_alive(pid)
        order(container, "exit 4")
        assert (await second.first("exited")).exit_code == 4
        assert (await second.first("settled")).problem == ""
        second.shutdown()
        assert await executor.wait() == 0
        assert len(second.identities) == 1


async def test_the_newest_of_several_masters_counts(tmp_path: Path, secrets: dict[str, bytes]) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(COMMAND))
    async with AsyncExitStack() as stack:
        _, pid = await lose_the_first_master(stack, container, secrets)
        second = Master(APPLICATION, KEY, welcome=tony_pb2.Welcome(am_attempt=2))
        async with serving(second, secrets) as port:
            move(container, port)
            await second.first("started")
        third = Master(APPLICATION, KEY, welcome=tony_pb2.Welcome(am_attempt=3))
        move(container, await stack.enter_async_context(serving(third, secrets)), attempt=3)
        assert (await third.first("started")).pid == pid


@pytest.mark.parametrize(
    ("attempt", "key"),
    [
        pytest.param(2, b"guessed", id="another's key"),
        pytest.param(0, KEY, id="an older master", marks=pytest.mark.long),
    ],
)
async def test_an_address_that_is_not_its_masters_is_not_taken(
    tmp_path: Path, secrets: dict[str, bytes], attempt: int, key: bytes
) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(COMMAND), master_lost_after=5)
    async with AsyncExitStack() as stack:
        executor, pid = await lose_the_first_master(stack, container, secrets)
        other = Master(APPLICATION, KEY)
        move(container, await stack.enter_async_context(serving(other, secrets)), attempt=attempt, key=key)
        assert await executor.wait() == contract.EXIT_MASTER_LOST
        assert not is_alive(pid)
        assert other.received == []


async def test_what_happened_meanwhile_is_told_in_order(tmp_path: Path, secrets: dict[str, bytes]) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(COMMAND))
    async with AsyncExitStack() as stack:
        executor, pid = await lose_the_first_master(stack, container, secrets)
        order(container, "exit 5")
        second = Master(APPLICATION, KEY, welcome=tony_pb2.Welcome(am_attempt=2))
        move(container, await stack.enter_async_context(serving(second, secrets)))
        await second.first("settled")
        said = [message.WhichOneof("kind") for message in second.received]
        assert [kind for kind in said if kind != "heartbeat"] == ["registration", "started", "exited", "settled"]
        assert not is_alive(pid)
        second.rendezvous(address("worker", 0, 20000), address("worker", 1, 20001), generation=3, start=7)  # again
        second.rendezvous(address("worker", 0, 20000), address("worker", 1, 20001), generation=4, start=8)
        assert [each.start for each in await second.all_of("started", 2)] == [7, 8]
        second.shutdown()
        assert await executor.wait() == 0

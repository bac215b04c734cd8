"""An application master that does what a test tells it, and writes down what the ResourceManager makes happen.

Started by YARN as ``python -m tests.runtime.am.yarn.led_master FOLDER host:port,… [NODE=RACK …]``. Orders are lines of
JSON in ``FOLDER/orders-<attempt>``, what happens is lines of JSON in ``FOLDER/events-<attempt>``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.runtime.am.resource_manager import Allocated, Container, ContainerRequest, Launch
from tony_provider.runtime.am.yarn.yarn_resource_manager import YarnResourceManager
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource, ResourceKind, YarnAccess
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.common.contract import ENV_TOKEN_FILE
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import ContainerId
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.placement import Placement
from tony_provider.runtime.protocol.status import FinalStatus

LOOK_SECONDS = 0.05
PRIORITY = 1


@attrs.define
class LedMaster:
    rm: YarnResourceManager
    folder: Path
    attempt: int
    launched: dict[str, Container] = attrs.field(factory=dict)
    over: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def run(self) -> None:
        registered = await self.rm.register(host="127.0.0.1", port=1, tracking_url="")
        self.write("Registered", containers=[attrs.asdict(each) for each in registered.containers])
        listening = asyncio.create_task(self.listen())
        obeying = asyncio.create_task(self.obey())
        await self.over.wait()
        for task in (listening, obeying):
            task.cancel()
        await self.rm.close()

    async def listen(self) -> None:
        async for event in self.rm.events():
            self.write(type(event).__name__, **attrs.asdict(event))
            if isinstance(event, Allocated):
                await self.launch(event.container)

    async def launch(self, container: Container) -> None:
        """A program that takes no notice of anybody, until its container is taken away."""
        self.launched[container.id] = container
        await self.rm.launch(container, Launch(["sleep", "1000"], {}, {}, Credentials().to_bytes()))
        self.write("Launched", container_id=container.id)

    async def obey(self) -> None:
        orders = (self.folder / f"orders-{self.attempt}").open()
        acts: dict[str, Callable[..., Awaitable[None]]] = {
            "request": self.request,
            "cancel": self.cancel,
            "release": self.release,
            "avoid": self.avoid,
            "look": self.look,
            "finish": self.finish,
        }
        while True:
            for line in orders:
                order = json.loads(line)
                await acts[order.pop("order")](**order)
            await asyncio.sleep(LOOK_SECONDS)

    async def request(
        self,
        keys: list[int],
        memory: int,
        placement: dict[str, Any] | None = None,
        tags: Sequence[str] = (),
        node_label: str | None = None,
    ) -> None:
        where = None if placement is None else from_plain(placement, Placement)
        self.rm.request(
            [
                ContainerRequest(key, PRIORITY, memory, 1, node_label=node_label, placement=where, tags=list(tags))
                for key in keys
            ]
        )

    async def cancel(self, keys: list[int]) -> None:
        self.rm.cancel(keys)

    async def release(self, containers: list[str]) -> None:
        self.rm.release(containers)

    async def avoid(self, nodes: list[str]) -> None:
        self.rm.avoid(nodes)

    async def look(self, key: int, memory: int, most: int) -> None:
        self.rm.look_for_room(ContainerRequest(key, PRIORITY, memory, 1), most)

    async def finish(self) -> None:
        await self.rm.finish(FinalStatus.SUCCEEDED, "as it was told")
        self.over.set()

    def write(self, event: str, **values: Any) -> None:
        with (self.folder / f"events-{self.attempt}").open("a") as file:
            file.write(json.dumps({"event": event, **values}) + "\n")


async def main(folder: Path, scheduler: str, racks: dict[str, str], credentials: Credentials) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    container = ContainerId.parse(os.environ["CONTAINER_ID"])
    nothing = LocalizedResource("tony", "hdfs://nn/none", 0, 0, ResourceKind.ARCHIVE)
    access = YarnAccess(scheduler.split(","), racks=racks)
    application = str(container.attempt.application)
    description = ApplicationDescription(
        application, "alice", JobSpec("standalone", {}), "hdfs://nn/job", None, [], nothing, yarn=access
    )
    (folder / f"orders-{container.attempt.number}").touch()
    await LedMaster(YarnResourceManager(description, access, credentials), folder, container.attempt.number).run()


if __name__ == "__main__":
    tokens = Credentials.from_bytes(Path(os.environ[ENV_TOKEN_FILE]).read_bytes())
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], dict(each.split("=") for each in sys.argv[3:]), tokens))

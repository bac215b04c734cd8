"""An application master that asks a real ResourceManager for containers and gives them back, for `benchmarks.grants`.

Started by YARN as ``python -m benchmarks.grant_master FOLDER SCHEDULER``. For each file ``ask-<n>`` in FOLDER, in which
a number of containers is, it leaves ``granted-<n>``: the seconds until it had them all; where it cannot go on,
``failed``. It asks as the application master of a job does, and launches nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import TypeVar

from tony_provider.runtime.am.resource_manager import Allocated, Completed, ContainerRequest, Event, NodesCounted
from tony_provider.runtime.am.yarn.yarn_resource_manager import YarnResourceManager
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource, ResourceKind, YarnAccess
from tony_provider.runtime.common.contract import ENV_TOKEN_FILE
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import ContainerId
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import FinalStatus

MEMORY = 64  # MiB
_LOOK = 0.02  # seconds
E = TypeVar("E", bound=Event)


async def main(folder: Path, scheduler: list[str]) -> None:
    access = YarnAccess(scheduler)
    application = str(ContainerId.parse(os.environ["CONTAINER_ID"]).attempt.application)
    nothing = LocalizedResource("tony", "hdfs://nn/none", 0, 0, ResourceKind.ARCHIVE)
    job = JobSpec("standalone", {})
    description = ApplicationDescription(application, "alice", job, "hdfs://nn/job", None, [], nothing, yarn=access)
    rm = YarnResourceManager(description, access, Credentials.read_file(os.environ[ENV_TOKEN_FILE]))
    await rm.register(host="127.0.0.1", port=1, tracking_url="")
    events = rm.events()
    (folder / "registered").touch()
    keys = count(1)
    for number in count(1):
        wanted = int(await _read(folder / f"ask-{number}"))
        if not wanted:
            break
        began = time.monotonic()
        rm.request([ContainerRequest(next(keys), 1, MEMORY, 1) for _ in range(wanted)])
        granted = [(await _next(events, Allocated)).container.id for _ in range(wanted)]
        seconds = time.monotonic() - began
        rm.release(granted)
        for _ in granted:
            await _next(events, Completed)
        write(folder / f"granted-{number}", f"{seconds}")
    await rm.finish(FinalStatus.SUCCEEDED, "as it was told")
    await rm.close()


async def _next(events: AsyncIterator[Event], kind: type[E]) -> E:
    """Return the next event about a container. Raises TypeError if it is not of this kind."""
    while isinstance(event := await anext(events), NodesCounted):
        pass
    if not isinstance(event, kind):
        raise TypeError(f"expected was {kind.__name__}: {event}")
    return event


async def _read(path: Path) -> str:
    while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(_LOOK)
    return await asyncio.to_thread(path.read_text)


def write(path: Path, text: str) -> None:
    """Whoever sees it sees it whole."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text)
    draft.rename(path)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    try:
        asyncio.run(main(place, sys.argv[2].split(",")))
    except BaseException:
        write(place / "failed", traceback.format_exc())
        raise

"""A later application master on this machine: its local cluster, like YARN, keeps the containers of a former one."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from pathlib import Path

import attrs

from tests.runtime.am.local_resource_manager.jobs import DEADLINE, LocalJob, Staged, master_container
from tony_provider.runtime.am.lifecycle import MasterContext, serve
from tony_provider.runtime.am.local_resource_manager import GIVEN_BACK, LocalProcess, LocalResourceManager, Share
from tony_provider.runtime.am.resource_manager import Container, ContainerExit, ExitReason, Registered
from tony_provider.runtime.common import contract
from tony_provider.runtime.launch.launch_context import NODE_HOST, PID_FILE, write_tokens
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import LocalStorage

_LOOK = 0.1  # seconds
_FIRST_NUMBER = 1000  # of the containers that it grants itself


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Inherited(LocalProcess):
    """A container that another process has started."""

    def __init__(self, directory: Path, pid: int) -> None:
        self.directory = directory
        self.pid = pid
        self._given_back = False

    async def wait(self) -> tuple[ContainerExit, str]:
        while alive(self.pid):  # noqa: ASYNC110 - it is not our child
            await asyncio.sleep(_LOOK)
        self.kill()
        return (GIVEN_BACK if self._given_back else ContainerExit(ExitReason.LOST)), ""

    async def stop(self) -> None:
        self._given_back = True
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


class Heir(LocalResourceManager):
    """Finds what runs in the cluster's directory when it is registered with."""

    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        registered = await super().register(host=host, port=port, tracking_url=tracking_url)
        found = []
        for directory in sorted((self._root / "containers").glob("*")):
            if not (directory / PID_FILE).exists():
                continue  # it has ended, and the former master was killed as it removed the directory
            pid = int((directory / PID_FILE).read_text().split()[0])
            process = Inherited(directory, pid)
            self._held[directory.name] = Share()
            self._processes[directory.name] = process
            self._background.spawn(self._watch(directory.name, process))
            found.append(Container(directory.name, NODE_HOST))
        self._numbers = itertools.count(_FIRST_NUMBER)
        return attrs.evolve(registered, containers=found)

    def abandon(self) -> None:
        """As if this application master were killed: its tasks do not notice."""
        self._processes.clear()


async def inherit(job: LocalJob, attempt: int = 2) -> FinalStatus:
    """Run the next application master of a job whose own one has died, in this process, to its end.

    Cancelled, it dies like that too.
    """
    own = job.root / "am"
    container_id = master_container(job.description.application_id, attempt)
    staged = Staged(job.directory, job.description, job.credentials, own)
    write_tokens(own, staged.credentials.to_bytes())
    environment = {**staged.environment, contract.ENV_CONTAINER_ID: container_id}
    context = MasterContext.of_process(environment)
    assert context.attempt == attempt
    description = job.description
    assert description.local
    manager = Heir(description, description.local)
    try:
        return await asyncio.wait_for(serve(context, LocalStorage(), manager), DEADLINE)
    except asyncio.CancelledError:
        manager.abandon()
        raise
    finally:
        await manager.close()

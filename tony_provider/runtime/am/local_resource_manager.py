"""The local cluster's ResourceManager, within the application master. Containers are process groups on this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Optional

import attrs

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
    Largest,
    Launch,
    LaunchFailed,
    NodesCounted,
    Registered,
    ResourceManager,
    ResourceManagerError,
    Room,
)
from tony_provider.runtime.application import ApplicationDescription, LocalAccess
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.files import remove_tree
from tony_provider.runtime.common.quantities import GPU, MEMORY, VCORES, amount, count
from tony_provider.runtime.jobspec.model import StartRule
from tony_provider.runtime.launch.launch_context import (
    NODE_HOST,
    PID_FILE,
    container_environment,
    materialise,
    write_tokens,
)
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.master_files import FinalReport, write_report
from tony_provider.runtime.protocol.status import FinalStatus

_NOTICE = 3600.0  # seconds; no process kills a local application master while it ends its tasks


@attrs.frozen
class Share:
    """A part of this machine: memory, cores and GPUs."""

    memory: int = 0  # MiB
    vcores: int = 0
    gpus: int = 0

    @classmethod
    def of(cls, request: ContainerRequest) -> Share:
        return cls(request.memory, request.vcores, request.resources.get(GPU, 0))

    def __add__(self, other: Share) -> Share:
        return Share(self.memory + other.memory, self.vcores + other.vcores, self.gpus + other.gpus)

    def fits(self, whole: Share) -> bool:
        return self.memory <= whole.memory and self.vcores <= whole.vcores and self.gpus <= whole.gpus

    def __str__(self) -> str:
        return ", ".join([amount(MEMORY, self.memory), amount(VCORES, self.vcores), amount(GPU, self.gpus)])


def _sum(shares: Iterable[Share]) -> Share:
    return sum(shares, Share())


class LocalResourceManager(ResourceManager):
    """Starts containers as process groups on this machine, within the limits of LocalAccess."""

    notice = _NOTICE

    def __init__(self, description: ApplicationDescription, access: LocalAccess) -> None:
        self._root = Path(access.root)
        self._whole = Share(access.memory, access.vcores, access.gpus)
        self._container_prefix = f"{description.application_id.replace('application', 'container', 1)}_01"
        self._one_by_one = description.job.start is StartRule.FIRST_COME  # requests need not all fit at the same time
        self._numbers = itertools.count(2)  # number 1 is the application master's own container
        self._waiting: dict[int, ContainerRequest] = {}
        self._held: dict[str, Share] = {}  # share of each granted container that has not ended, by ID
        self._processes: dict[str, LocalProcess] = {}
        self._events = EventQueue()
        self._background = Background(self._events.fail)
        self._closed = False

    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        await asyncio.to_thread(master_files.write_tracking_url, self._root, tracking_url)
        self._events.put(NodesCounted(1))
        return Registered(Largest(self._whole.memory, self._whole.vcores, {GPU: self._whole.gpus}))

    def request(self, requests: Sequence[ContainerRequest]) -> None:
        self._waiting.update((request.key, request) for request in requests)
        # Held containers may be about to be released, so requests that do not fit yet wait for them.
        wanted = [Share.of(request) for request in self._waiting.values()]
        if all(share.fits(self._whole) for share in wanted) if self._one_by_one else _sum(wanted).fits(self._whole):
            self._grant()
            return
        self._events.fail(
            ResourceManagerError(
                f"the job needs {_sum(wanted)} for {count(len(wanted), 'task')} at once, but "
                f"the local cluster's limit per job is {self._whole}: request less, or raise the connection's limits"
            )
        )

    def cancel(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._waiting.pop(key, None)

    def release(self, container_ids: Sequence[str]) -> None:
        for container_id in container_ids:
            if process := self._processes.get(container_id):
                self._background.spawn(process.stop())
            elif self._held.pop(container_id, None):
                self._events.put(Completed(container_id, NEVER_LAUNCHED, "released"))
        self._grant()

    def avoid(self, nodes: Sequence[str]) -> None:
        """Do nothing, because there is only one node."""

    def look_for_room(self, request: ContainerRequest, most: int) -> None:
        taken = [*self._held.values(), *map(Share.of, self._waiting.values())]
        fitting = 0
        while fitting < most and _sum([*taken, *[Share.of(request)] * (fitting + 1)]).fits(self._whole):
            fitting += 1
        self._events.put(Room(request.key, fitting))

    async def launch(self, container: Container, launch: Launch) -> None:
        if container.id not in self._held:
            return  # the container was released in the meantime
        directory, log_dir = self._root / "containers" / container.id, self._root / "logs" / container.id
        try:
            process = await LocalProcess.start(container.id, directory, log_dir, launch)
        except OSError as error:
            self._events.put(LaunchFailed(container.id, str(error)))
            return
        if container.id not in self._held or self._closed:
            process.kill()
            await process.wait()
            return
        self._processes[container.id] = process
        self._background.spawn(self._watch(container.id, process))

    def events(self) -> AsyncIterator[Event]:
        return self._events.__aiter__()

    def set_progress(self, progress: float) -> None:
        """Do nothing, because the job's status already contains the progress."""

    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        processes = list(self._processes.values())
        await asyncio.gather(*(process.stop() for process in processes))
        # This process may end before the watches of the processes have removed the directories.
        for directory in (*(each.directory for each in processes), self._root / "containers" / contract.UNPACKED_DIR):
            await asyncio.to_thread(remove_tree, directory)
        await asyncio.to_thread(write_report, self._root, FinalReport(status, diagnostics, "", epoch_ms()))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for process in self._processes.values():
            process.kill()
        self._events.close()
        await self._background.close()

    async def _watch(self, container_id: str, process: LocalProcess) -> None:
        ended, diagnostics = await process.wait()
        await asyncio.to_thread(remove_tree, process.directory)
        del self._processes[container_id]
        self._held.pop(container_id, None)
        self._events.put(Completed(container_id, ended, diagnostics))
        self._grant()

    def _grant(self) -> None:
        """Grant requests in the order of their priority and key, as far as resources are free."""
        for request in sorted(self._waiting.values(), key=lambda request: (request.priority, request.key)):
            share = Share.of(request)
            if not _sum([share, *self._held.values()]).fits(self._whole):
                return
            del self._waiting[request.key]
            container_id = f"{self._container_prefix}_{next(self._numbers):06d}"
            self._held[container_id] = share
            container = Container(container_id, NODE_HOST)
            self._events.put(Allocated(request.key, container))


# Exit statuses of YARN, so that the local cluster and YARN produce the same event logs.
GIVEN_BACK = ContainerExit(ExitReason.GIVEN_BACK, -105)
NEVER_LAUNCHED = ContainerExit(ExitReason.LOST, -100)
TERM_GRACE = 5.0  # seconds between SIGTERM and SIGKILL of the group
_TAIL = 4096  # bytes of stderr in the diagnostics, as on YARN


@attrs.define(eq=False)
class LocalProcess:
    """The process group of one local container, in its directory."""

    directory: Path
    log_dir: Path
    _process: asyncio.subprocess.Process
    _stopped: bool = False

    @classmethod
    async def start(cls, container_id: str, directory: Path, log_dir: Path, launch: Launch) -> LocalProcess:
        """Create the container's directory and start its program. Raises OSError."""
        await asyncio.to_thread(_prepare, directory, log_dir, launch)
        environment = {**container_environment(container_id, directory, log_dir), **launch.env}
        with (log_dir / "stdout").open("ab") as stdout, (log_dir / "stderr").open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                cwd=directory,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        started = cls(directory, log_dir, process)
        try:
            await asyncio.to_thread(_note_pid, directory, process.pid)
        except BaseException:
            started.kill()
            raise
        return started

    async def wait(self) -> tuple[ContainerExit, str]:
        """Wait for the program, kill the rest of its process group, and return the exit with diagnostics."""
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        diagnostics = await asyncio.to_thread(_tail, self.log_dir / "stderr")
        if self._stopped:
            return GIVEN_BACK, diagnostics
        return ContainerExit(ExitReason.EXITED, contract.exit_code(-code) if code < 0 else code), diagnostics

    async def stop(self) -> None:
        """Send SIGTERM to the group, and SIGKILL after TERM_GRACE. ``wait`` returns after the program has ended."""
        self._stopped = True
        self._signal(signal.SIGTERM)
        try:
            await wait_with_timeout(self._process.wait(), TERM_GRACE)
        except asyncio.TimeoutError:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the group immediately."""
        self._stopped = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _prepare(directory: Path, log_dir: Path, launch: Launch) -> None:
    log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    materialise(directory, launch.files)
    write_tokens(directory, launch.credentials)


def _note_pid(directory: Path, pid: int) -> None:
    """Record the process, so that the cluster can find it after this application master was killed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return  # the process has already ended
    start = stat.rpartition(")")[2].split()[19]
    partial = directory / f"tony-{PID_FILE}.part"  # no file of the user has such a name
    partial.write_text(f"{pid} {start}\n")
    partial.replace(directory / PID_FILE)  # atomically, in case a process is killed or the disk is full


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size: Optional[int] = file.seek(0, os.SEEK_END)
        file.seek(max(0, (size or 0) - _TAIL))
        return file.read().decode("utf-8", "replace")

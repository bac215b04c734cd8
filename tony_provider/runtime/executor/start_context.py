"""Objects and base classes for the components of a start of the user processes, such as inputs and uploads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.concurrency import Cancelled, wait_with_timeout
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_paths import CheckpointLink, SharedCheckpoints
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.gpus import ContainerGpus
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.workspace import JobFiles, Workspace
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.jobspec.model import Preflight, ranks
from tony_provider.runtime.protocol import messages, tony_pb2
from tony_provider.runtime.storage import Storage

if TYPE_CHECKING:
    from tony_provider.runtime.executor.hadoop_access import HadoopAccess

T = TypeVar("T")

_CANCEL_TIMEOUT = 5.0  # seconds for a cancelled copy to end, and perhaps to remove its objects

Deadline = Callable[[], float]
"""In seconds of ``time.monotonic``. Asked again and again, since it may come to be earlier."""


class StopRequest:
    """The request to stop a start, with its deadlines. Further requests can only make the deadlines earlier."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()  # set at the first request; for threads
        self.stacks = False  # log the stacks of all threads first
        self.container_ending = False  # the container ends, so the processes count as stopped whatever their exit codes
        self.asked_at = float("inf")  # time.monotonic of the first request
        self._news = asyncio.Event()
        self._kill_at = float("inf")
        self._copy_seconds = float("inf")

    @property
    def asked(self) -> bool:
        return self.cancelled.is_set()

    def ask(self, grace: float, copy_seconds: float, *, stacks: bool = False, container_ending: bool = False) -> None:
        """Request the end of the processes: SIGKILL after ``grace`` seconds, then ``copy_seconds`` for last copies."""
        now = time.monotonic()
        self._kill_at = min(self._kill_at, now + grace)
        self._copy_seconds = min(self._copy_seconds, copy_seconds)
        self.asked_at = min(self.asked_at, now)
        self.stacks = self.stacks or stacks
        self.container_ending = self.container_ending or container_ending
        self.cancelled.set()
        news, self._news = self._news, asyncio.Event()
        news.set()

    def kill_at(self) -> float:
        """Return the ``time.monotonic`` of SIGKILL, or infinity without a request."""
        return self._kill_at

    def copy_until(self, ended_at: float, seconds: float) -> float:
        """Return the deadline of the last copies: ``seconds`` after the end of the process, or as requested.

        All times are those of ``time.monotonic``.
        """
        if not self.asked:
            return ended_at + seconds
        return max(ended_at, self.asked_at) + self._copy_seconds

    async def wait(self) -> None:
        """Wait for the first request."""
        while not self.asked:
            await self._news.wait()

    async def bound(self, work: asyncio.Future[Any], deadline: Deadline) -> bool:
        """Wait for ``work`` until the deadline, but do not cancel it. Return whether it is done."""
        while not work.done() and (left := deadline() - time.monotonic()) > 0:
            news = asyncio.ensure_future(self._news.wait())
            try:
                timeout = left if left < float("inf") else None
                await asyncio.wait({work, news}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
        return work.done()

    async def result_of(self, work: Awaitable[T], name: str) -> T:
        """Return the result of work that ends soon after the first request. ``name``: for messages.

        Raises the errors of the work. Raises Cancelled if the work still runs ``_CANCEL_TIMEOUT`` seconds
        after the request. The work is not cancelled, and continues without this caller.
        """
        future = asyncio.ensure_future(work)
        if not await self.bound(future, lambda: self.asked_at + _CANCEL_TIMEOUT):
            raise Cancelled(f"{name} did not end after the request to stop")
        return future.result()


@attrs.frozen
class StartOrder:
    """The order of a rendezvous to start the user processes in a cluster, from a checkpoint or from the beginning."""

    start: int  # number of the start of this task's process, over all containers and application masters
    cluster: ClusterSpec
    resume: Optional[ResumePoint] = None  # None means from the beginning
    keep_checkpoints: bool = False  # keep the checkpoint directory, and resume from its content
    preflight: Optional[Preflight] = None  # checks before the processes start, or None

    @classmethod
    def of_message(cls, rendezvous: tony_pb2.Rendezvous) -> StartOrder:
        resume = messages.resume_point_of(rendezvous.resume) if rendezvous.HasField("resume") else None
        cluster = messages.unpack_cluster(rendezvous.generation, rendezvous.cluster)
        preflight = Preflight(rendezvous.preflight) if rendezvous.preflight else None
        return cls(rendezvous.start, cluster, resume, rendezvous.keep_checkpoints, preflight)

    @property
    def generation(self) -> int:
        return self.cluster.generation

    def rank(self, task_type: str, index: int) -> Optional[int]:
        """Return the task's rank, or None for tasks outside the cluster (evaluators, sidecars)."""
        return ranks(self.cluster.tasks).get((task_type, index))

    def __str__(self) -> str:
        return f"start {self.start} (generation {self.generation})"


@attrs.define(eq=False)
class ExecutorContext:
    """The resources of an executor that all starts of its user processes share."""

    container: ExecutorContainer
    workspace: Workspace
    ports: HeldPorts
    output: Output
    storage: Storage
    checkpoints: CheckpointDirectory
    checkpoint_link: CheckpointLink
    files: JobFiles
    hadoop: Optional[HadoopAccess] = None  # None if user processes get no access
    shared: Optional[SharedCheckpoints] = None  # None if the container has a separate checkpoint directory
    gpus: Optional[ContainerGpus] = None  # None if user processes see the GPUs that the node shows
    # One thread: an abandoned preparation that hangs must end before the next one writes to its directories.
    preparing: ThreadPoolExecutor = attrs.field(factory=lambda: ThreadPoolExecutor(1, "prepare"))

    @property
    def workspaces(self) -> list[Workspace]:
        """The workspaces of the user processes, by local rank."""
        return [self.workspace.of_process(local_rank) for local_rank in range(self.container.process_count)]

    def close(self) -> None:
        """Release the resources of the container."""
        self.checkpoint_link.close()
        if self.shared is not None:
            self.shared.close()
        self.ports.close()
        self.output.close()
        self.storage.close()


_LONGEST_LAST_PAUSE = 3.0  # longest pause in seconds after the processes have ended: the end of the start waits for it


class StartPart:
    """Base class for a component of one start, with texts that the job's status shows. Call ``close`` once."""

    def __init__(self) -> None:
        self.activity = ""  # description of the current copy or wait; otherwise empty
        self.problem = ""  # the present problem with the store, with its reason; otherwise empty
        self._replay: Sequence[tony_pb2.FromExecutor] = ()

    @property
    def replay(self) -> Sequence[tony_pb2.FromExecutor]:
        """The messages for an application master that may have missed them."""
        return self._replay

    async def close(self) -> None:
        """Cancel all operations in progress, and release threads and connections."""


_NICE = 10  # nice value of threads that work in the background; 19 is the lowest priority


def _lower_priority() -> None:
    """Lower the CPU priority of this thread, so that it delays user processes less. Its new threads inherit this.

    If the container already has a lower priority, the thread keeps that priority. In Linux, each thread has its own
    priority, which also determines the priority of its disk accesses (ioprio_set(2)).
    """
    with suppress(OSError):  # the kernel, or a sandbox, may refuse
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


class BackgroundWork(StartPart):
    """Work that runs while the user processes run and after they have ended. Call ``start`` at most once."""

    def __init__(self, name: str) -> None:
        """Prepare the work. ``name``: prefix of the thread's name."""
        super().__init__()
        self._work: Optional[asyncio.Future[None]] = None
        self._nudge = asyncio.Event()
        self._ended = False  # whether the user processes have ended
        # A separate thread, because a server that does not answer must not delay the executor's shared threads.
        self._pool = ThreadPoolExecutor(1, name, _lower_priority)

    def start(self) -> None:
        """Start the work."""
        self._work = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)

    @abstractmethod
    async def _run(self) -> None:
        """Do the work. Return soon after ``_ended`` is set and nothing is left to do. May be cancelled."""

    async def _end(self, work: asyncio.Future[None], stop_request: StopRequest, deadline: Deadline) -> bool:
        """Wait for the end of the work, after the user processes have ended. Return False at the deadline.

        Raises internal errors of the work.
        """
        self._ended = True
        self._nudge.set()
        if not await stop_request.bound(work, deadline):
            return False
        work.result()
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait for the given time, or at most ``_LONGEST_LAST_PAUSE`` after the user processes have ended."""
        await self._wait(min(seconds, _LONGEST_LAST_PAUSE) if self._ended else seconds)

    async def _wait(self, seconds: float) -> None:
        """Wait for the given time, or until ``_nudge`` is set."""
        try:
            await wait_with_timeout(self._nudge.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._nudge.clear()

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)

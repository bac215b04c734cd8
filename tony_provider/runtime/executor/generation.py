"""One user process, from its rendezvous to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime import contract, shell
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.container import Container
from tony_provider.runtime.executor.ends import command_problem
from tony_provider.runtime.executor.environment import user_environment
from tony_provider.runtime.executor.memory import OutOfMemoryWatch
from tony_provider.runtime.executor.output import Capture, Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.progress import ProgressReader
from tony_provider.runtime.executor.results import UploadCancelledError, commit_directory, is_empty
from tony_provider.runtime.executor.workspace import PythonEnvError, Workspace
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.frameworks.generic import task_environment
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import Storage, StorageError, uris

log = logging.getLogger(__name__)

LEFTOVER_GRACE = 5.0  # seconds that what a user process leaves running gets between SIGTERM and SIGKILL
_DRAIN_PATIENCE = 5.0  # seconds for the end of the output, once nobody is left to write it
_CANCEL_PATIENCE = 5.0  # seconds for an upload that was told to stop to clear away what it has made
_OOM_SCORE = 500  # of 1000: the kernel, short of memory, takes the user process rather than its executor

# The score first, then the command in the same process: whatever it starts inherits it.
_START = f'{{ echo {_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; exec /bin/sh -c "$1"'


@attrs.define(eq=False)
class Surroundings:
    """What the generations of one container share."""

    container: Container
    workspace: Workspace
    ports: HeldPorts
    output: Output
    storage: Storage


class Generation:
    """``run`` it once; ``stop`` may come at any time."""

    def __init__(
        self, surroundings: Surroundings, cluster: ClusterSpec, send: Callable[[tony_pb2.FromExecutor], None]
    ) -> None:
        self.number = cluster.generation
        self.activity = "starting"
        self.pid: Optional[int] = None
        self.started: Optional[tony_pb2.ProcessStarted] = None
        self.exited: Optional[tony_pb2.ProcessExited] = None
        self._its = surroundings
        self._cluster = cluster
        self._send = send
        self._reader = ProgressReader(surroundings.workspace.metrics_file)
        self._reading = asyncio.Lock()
        self._memory = OutOfMemoryWatch()
        self.over = asyncio.Event()  # run has ended
        self._stop = asyncio.Event()
        self._stop_at = 0.0  # of time.monotonic, once _stop is set
        self._doomed = False
        self._upload_cancelled = threading.Event()

    def stop(self, grace: float) -> None:
        """End the user process, with SIGKILL after ``grace`` seconds. Again, it can only come sooner."""
        deadline = time.monotonic() + grace
        self._stop_at = min(self._stop_at, deadline) if self._stop.is_set() else deadline
        self._stop.set()
        self._upload_cancelled.set()

    def doom(self, grace: float) -> None:
        """Like ``stop``, and whatever the process does about it counts as stopped: YARN takes the container away."""
        self._doomed = True
        self.stop(grace)

    async def progress(self) -> Optional[tony_pb2.Progress]:
        """What the user process reported last."""
        async with self._reading:
            return await asyncio.to_thread(self._reader.look, time.monotonic())

    async def look_at_memory(self) -> None:
        """Forget what the kernel killed up to now: it was not the user process. Call it regularly while that runs."""
        if self.activity == "running":
            await asyncio.to_thread(self._memory.look)

    async def run(self) -> None:
        """Until ``exited`` says how it ended. Only what is a fault of ours is raised."""
        exited = tony_pb2.ProcessExited(generation=self.number)
        try:
            if self._stop.is_set():
                exited.stopped = True
            else:
                await self._run_process(exited)
        except (OSError, PythonEnvError, LookupError) as error:
            exited.exit_code = shell.NOT_EXECUTABLE
            exited.error = f"the command could not be started: {error}"
        progress = await self.progress()
        if progress is not None:
            exited.progress.CopyFrom(progress)
        exited.stopped = exited.stopped or self._doomed
        if self._succeeded(exited):
            await self._keep_results(exited)
        self.pid = None
        self.activity = "ended"
        self.exited = exited
        log.info("generation %d ended: exit code %d, signal %d", self.number, exited.exit_code, exited.signal)
        self._send(tony_pb2.FromExecutor(exited=exited))
        self.over.set()

    @staticmethod
    def _succeeded(exited: tony_pb2.ProcessExited) -> bool:
        return not (exited.exit_code or exited.signal or exited.error or exited.stopped)

    async def _run_process(self, exited: tony_pb2.ProcessExited) -> None:
        environ = await asyncio.to_thread(self._prepare)
        async with Capture(self._its.output) as capture:
            process = await self._start(environ, capture)
            ending = asyncio.ensure_future(process.wait())
            try:
                await self._until_gone(process.pid, ending, exited)
            finally:
                ending.cancel()
            if not await capture.drained(_DRAIN_PATIENCE):
                log.warning("something still holds the output of generation %d", self.number)
            exited.output_tail = capture.tail()
        if exited.signal == 0 and exited.exit_code:
            exited.error = command_problem(self._its.container.spec.command, exited.exit_code, exited.output_tail)

    def _prepare(self) -> dict[str, str]:
        container, workspace = self._its.container, self._its.workspace
        found = task_environment(
            container.job, self._cluster, container.task_type, container.index, directory=str(container.directory)
        )
        for name, text in found.files.items():
            Path(container.directory, name).write_text(text)
        workspace.renew()
        python_bin = workspace.python_bin(container.job.python_env)
        self._its.output.note(f"{container.identity.task}, generation {self.number}, on {container.host}")
        self._memory.look()
        return user_environment(container, workspace, found.env, python_bin)

    async def _start(self, environ: dict[str, str], capture: Capture) -> asyncio.subprocess.Process:
        self._its.ports.make_way()
        # No session and no group of its own: YARN's kill goes to the container's process group. And nothing that would
        # keep Python 3.9 from posix_spawn (cwd, close_fds): its fork would run gRPC's handlers, which break the child.
        # All our files are close-on-exec, and the working directory is the container's.
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *("-c", _START, "sh", self._its.container.spec.command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=capture.stdout,
            stderr=capture.stderr,
            close_fds=False,
            env=environ,
        )
        capture.started()
        self.pid = process.pid
        self.activity = "running"
        self.started = tony_pb2.ProcessStarted(generation=self.number, pid=process.pid)
        self._send(tony_pb2.FromExecutor(started=self.started))
        log.info("generation %d started, process %d", self.number, process.pid)
        return process

    async def _until_gone(self, pid: int, ending: asyncio.Future[Any], exited: tony_pb2.ProcessExited) -> None:
        """Until the process and everything that it started have ended; fills in how it did."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        by_itself = ending.done()
        exited.stopped = not by_itself
        killed = by_itself and await asyncio.to_thread(self._memory.killed_recently)
        self.activity = "stopping"
        latest = time.monotonic() + LEFTOVER_GRACE if by_itself else float("inf")
        left = await processes.stop_all(os.getpid(), pid, lambda: self._deadline(latest))
        await asyncio.wait({ending}, timeout=processes.KILL_PATIENCE)
        if ending.done():
            code = ending.result()
            exited.exit_code, exited.signal = max(code, 0), max(-code, 0)
            exited.signal = shell.killed_by(code) or exited.signal
            exited.out_of_memory = killed and exited.signal == signal.SIGKILL
        else:
            exited.signal = signal.SIGKILL
        if left:
            log.error("%d processes of generation %d cannot be killed", left, self.number)
            exited.error = f"{left} of its processes could not be killed"

    def _deadline(self, latest: float) -> float:
        return min(latest, self._stop_at) if self._stop.is_set() else latest

    async def _keep_results(self, exited: tony_pb2.ProcessExited) -> None:
        if not self._its.container.leads:
            return
        workspace = self._its.workspace
        self.activity = "uploading"
        try:
            exited.model_dir = await self._keep(workspace.model, contract.MODEL_DIR)
        except (UploadCancelledError, asyncio.TimeoutError):
            exited.stopped = True
        except (StorageError, OSError) as error:
            # Names of files may be no text, which no message can carry.
            exited.error = f"its results could not be uploaded: {error}".encode("utf-8", "replace").decode()

    async def _keep(self, directory: Path, name: str) -> str:
        """Commit a directory to the store; returns its URI there, empty when there is nothing in it."""
        if await asyncio.to_thread(is_empty, directory):
            return ""
        target = uris.join(self._its.container.description.application_dir, name)
        uploading = asyncio.ensure_future(
            asyncio.to_thread(commit_directory, self._its.storage, directory, target, self._upload_cancelled)
        )
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({uploading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        return await asyncio.wait_for(uploading, _CANCEL_PATIENCE)

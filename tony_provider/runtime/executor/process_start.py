"""One start of a container's user processes: from the rendezvous until the last upload has ended."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.checkpoint_mirror import CheckpointMirror, stores_checkpoints
from tony_provider.runtime.executor.kept_results import (
    ModelExports,
    NotStoredError,
    UploadRetries,
    keep_debug_files,
    keep_results,
)
from tony_provider.runtime.executor.master_link import MasterRequests, Send
from tony_provider.runtime.executor.ports import ReadinessWatch
from tony_provider.runtime.executor.progress import EventScalars, ProcessProgress, ProgressReader
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder, StartPart, StopRequest
from tony_provider.runtime.executor.start_preparation import PreparationError, PreparedStart, prepare_start
from tony_provider.runtime.executor.task_inputs import TaskInputs
from tony_provider.runtime.executor.task_outputs import TaskOutputs
from tony_provider.runtime.executor.unstored_files import UnstoredFiles
from tony_provider.runtime.executor.user_environment import PythonEnvError
from tony_provider.runtime.executor.user_processes import UserProcess, UserProcesses
from tony_provider.runtime.executor.workspace import disk_problem
from tony_provider.runtime.protocol import tony_pb2

log = logging.getLogger(__name__)

_MOST_LEFT_OUT = 10  # warnings in the status; the log has all
_SHORT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class ProcessStart:
    """One start of the container's user processes. Call ``run`` once. ``stop`` may be called at any time."""

    def __init__(self, context: ExecutorContext, order: StartOrder, requests: MasterRequests, send: Send) -> None:
        self.order = order
        self._remembered: list[tony_pb2.FromExecutor] = []
        self.resumed: Optional[Resumed] = None
        self.over = asyncio.Event()  # set when the start has ended completely
        self._context = context
        self._send = send
        self._activity = "starting"
        self._stop_request = StopRequest()
        self._processes = UserProcesses(context, self._stop_request, self._warn, self._send_stacks)
        # Readers by local rank; empty until the metrics files of former processes are removed.
        self._readers: list[ProcessProgress] = []
        self._reading = asyncio.Lock()
        self._readiness: Optional[ReadinessWatch] = None  # created by the preparation, if the task has a probe
        self._retries = UploadRetries(context, self._stop_request)
        self._left_out: list[str] = []  # warnings about entries of models and outputs
        self._outputs = TaskOutputs(context, order.start, self._stop_request, self._retries, self._warn)
        self._inputs = TaskInputs(context, order.start, requests, self._outputs)
        self._exports: Optional[ModelExports] = ModelExports(context, send, self._warn) if self._is_leader else None
        self._mirror: Optional[CheckpointMirror] = None
        if stores_checkpoints(context.container, is_leader=self._is_leader):
            self._mirror = CheckpointMirror(context, order, requests, send, self._reported_step)
        self._unstored = UnstoredFiles(context, stores=self._mirror is not None, is_leader=self._is_leader)
        parts = (self._inputs, self._outputs, self._retries, self._mirror, self._exports, self._unstored)
        self._parts: list[StartPart] = [part for part in parts if part is not None]

    @property
    def _is_leader(self) -> bool:
        """Whether this task provides the job's model and result. Another task may lead in the next generation."""
        container = self._context.container
        return self.order.rank(container.task_type, container.index) == 0

    @property
    def replay(self) -> list[tony_pb2.FromExecutor]:
        """The messages, in order, for an application master that may have missed them."""
        return [*self._remembered, *(message for part in self._parts for message in part.replay)]

    @property
    def running(self) -> Sequence[UserProcess]:
        """The running user processes by local rank."""
        return self._processes.running

    @property
    def pids(self) -> Sequence[int]:
        """The PIDs of the user processes."""
        return self._processes.pids

    @property
    def children(self) -> Sequence[int]:
        """The PIDs of all processes that the start waits for."""
        probing = self._readiness.pid if self._readiness else None
        return self.pids if probing is None else [*self.pids, probing]

    @property
    def ready(self) -> bool:
        """Whether the readiness probe has succeeded."""
        return self._readiness is not None and self._readiness.ready

    @property
    def held_shards(self) -> list[tony_pb2.HeldShards]:
        """The shards that the user process has taken and not completed."""
        return self._inputs.held

    @property
    def activity(self) -> str:
        """The present activity, for the status."""
        copying = next((part.activity for part in self._parts if part.activity), "")
        if not copying:
            return self._activity
        return f"running, {copying}" if self._activity == "running" else copying

    @property
    def problem(self) -> str:
        """The reason if uploads to the store fail at present, for the status. Otherwise an empty text."""
        return next((part.problem for part in self._parts if part.problem), "")

    @property
    def notices(self) -> list[str]:
        """Notices about files of the processes that are not stored, or stored under other names."""
        return [replaced(notice) for notice in [*self._unstored.notices, *self._left_out[:_MOST_LEFT_OUT]]]

    def stop(self, grace: float, copy_seconds: float, *, stacks: bool = False) -> None:
        """End the processes, with SIGKILL after ``grace`` seconds. Copy the last checkpoint within ``copy_seconds``.

        A further call can only shorten both times. ``stacks``: log the stacks of all threads first.
        """
        self._stop_request.ask(grace, copy_seconds, stacks=stacks)

    def stop_for_container_end(self, grace: float) -> None:
        """Stop the start because YARN ends the container. The processes count as stopped, whatever the exit code."""
        self._stop_request.ask(grace, 0.0, container_ending=True)

    def inspect_checkpoints(self) -> None:
        """Inspect the checkpoint directory at once, because it may contain a new checkpoint."""
        if self._mirror is not None:
            self._mirror.inspect_now()

    def take_snapshot(self, wanted: tony_pb2.TakeSnapshot) -> None:
        """Take the snapshot of the checkpoint directory that the application master orders."""
        if self._mirror is not None:
            self._mirror.take(wanted)

    async def ask_export(self, wanted: tony_pb2.ExportNow) -> None:
        """Request an export of the model from the user process while it runs."""
        if self._exports is not None:
            await self._exports.ask(wanted)

    async def progress(self, local_rank: int = 0) -> Optional[tony_pb2.Progress]:
        """Return the last progress of one of the user processes, or None if there is none yet."""
        if not self._readers:
            return None
        async with self._reading:
            return await asyncio.to_thread(self._readers[local_rank].poll, time.monotonic())

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the first user process that has logged any, as of the last ``progress`` of each process."""
        return next((each.reports.parameters for each in self._readers if each.reports.parameters), {})

    async def read_memory(self) -> None:
        """Read the kernel's counters; see ``UserProcesses.read_memory``."""
        await self._processes.read_memory()

    async def run(self) -> None:
        """Prepare, run and conclude the start, and set ``over``. Raises only internal errors."""
        try:
            await self._run()
        finally:
            await self._close_readiness()
            for part in self._parts:
                await part.close()
            self._activity = "ended"
            self.over.set()

    async def _run(self) -> None:
        exited = tony_pb2.ProcessExited(generation=self.order.generation, start=self.order.start)
        try:
            prepared = await self._prepare()
            places = {**await self._outputs.open(), **await self._open_inputs()}
            launches = [attrs.evolve(each, environ={**each.environ, **places}) for each in prepared.launches]
            self._unstored.start()
            await self._processes.run(launches, exited, self._started)
        except PreparationError as error:
            await self._stay_stopped(error)
            exited.stopped = True
        except Cancelled:
            exited.stopped = True
        except (OSError, PythonEnvError, LookupError) as error:
            # A node that is short of a resource may have it later. Any other error would recur at the next attempt.
            is_short = isinstance(error, OSError) and error.errno in _SHORT
            exited.exit_code = 1 if is_short else contract.EXIT_NOT_EXECUTABLE
            exited.error = replaced(f"the command could not be started: {error}")
            if is_short:
                exited.node_problem = "its node is short of processes, memory or file handles"
        await self._close_readiness()
        await self._end(exited)

    # ---- before it -----------------------------------------------------------------------------------------------

    async def _prepare(self) -> PreparedStart:
        """Return the prepared start. Raises PreparationError, Cancelled, and the errors of ``prepare_start``."""
        if self._stop_request.asked:
            raise Cancelled("stopped before its preparation began")
        loop = asyncio.get_running_loop()
        resume = self.order.resume
        self._activity = f"restoring {resume.label}" if resume else "starting"
        preparing = loop.run_in_executor(
            self._context.preparing, prepare_start, self._context, self.order, self._stop_request.cancelled
        )
        prepared = await self._stop_request.result_of(preparing, "a copy from the store")
        self.resumed = prepared.resumed
        probe = self._context.container.spec.ready
        if probe is not None:
            self._readiness = ReadinessWatch(self._context.container, probe, prepared.launches[0].environ)
        self._readers = await asyncio.to_thread(_progress_readers, self._context)
        if self._stop_request.asked:
            raise Cancelled("stopped before the user process had started")
        return prepared

    async def _open_inputs(self) -> dict[str, str]:
        """Return the variables by which the process finds its inputs. Raises PreparationError, Cancelled."""
        self._activity = "fetching its part of the inputs"
        opening = asyncio.ensure_future(self._inputs.open())
        if not await self._stop_request.bound(opening, lambda: self._stop_request.asked_at):
            opening.cancel()
            await asyncio.wait({opening})
            raise Cancelled("stopped before the task's part of the inputs was written")
        try:
            return opening.result()
        except OSError as error:  # a problem of this node, usually a full disk
            raise PreparationError(f"the task's part of the inputs could not be written: {error}") from error

    def _started(self, pid: int) -> None:
        self._activity = "running"
        started = tony_pb2.ProcessStarted(generation=self.order.generation, start=self.order.start, pid=pid)
        self._send_and_remember(tony_pb2.FromExecutor(started=started))
        log.info("%s: %s", self.order, ", ".join(f"process {each}" for each in self.pids))
        if self._mirror is not None:
            self._mirror.start()
        if self._exports is not None:
            self._exports.start()
        if self._readiness is not None:
            self._readiness.start()

    async def _close_readiness(self) -> None:
        if self._readiness is not None:
            await self._readiness.close()

    async def _stay_stopped(self, error: PreparationError) -> None:
        """Report the failed preparation, and wait until the master orders to stop."""
        log.error("%s: %s", self.order, error)
        what = "its checkpoint could not be restored" if error.uri else "it could not be prepared"
        self._activity = f"waiting: {what}"
        failed = tony_pb2.PreparationFailed(
            generation=self.order.generation,
            start=self.order.start,
            uri=error.uri,
            damaged=error.damaged,
            unfit=error.unfit,
            reason=replaced(str(error)),
        )
        self._send_and_remember(tony_pb2.FromExecutor(preparation_failed=failed))
        await self._stop_request.wait()

    # ---- after it ------------------------------------------------------------------------------------------------

    async def _end(self, exited: tony_pb2.ProcessExited) -> None:
        ended_at = time.monotonic()
        await self._remove_tokens()
        progress = await self.progress()
        if progress is not None:
            exited.progress.CopyFrom(progress)
        exited.parameters.update(self.parameters)
        exited.stopped = exited.stopped or self._stop_request.container_ending
        exited.output_problem = self._context.output.problem
        log.info("%s ended: exit code %d, signal %d", self.order, exited.exit_code, exited.signal)
        if _succeeded(exited):
            problem = await self._copy_last(ended_at, succeeded=True)
            await self._finish_shared(problem)
            await self._keep_results(exited)
            self._send_and_remember(tony_pb2.FromExecutor(exited=exited))
        else:
            await self._inspect_disk(exited)
            self._send_and_remember(tony_pb2.FromExecutor(exited=exited))
            problem = await self._copy_last(ended_at, succeeded=False)
            if lost := await keep_debug_files(self._context, self.order.start):
                self._warn(lost)
        if problem:
            log.warning("%s: the newest checkpoint is not on the store: %s", self.order, problem)
        unstored = await self._unstored.finish(problem)
        settled = tony_pb2.Settled(
            generation=self.order.generation,
            start=self.order.start,
            problem=replaced(problem),
            notices=self.notices,
            unstored=unstored,
        )
        self._send_and_remember(tony_pb2.FromExecutor(settled=settled))

    async def _remove_tokens(self) -> None:
        if self._context.hadoop is not None:
            try:
                await asyncio.to_thread(self._context.hadoop.remove_tokens)
            except OSError as error:
                log.warning("the user process's HDFS tokens could not be removed: %s", error)

    async def _copy_last(self, ended_at: float, *, succeeded: bool) -> str:
        """Store the last checkpoint and exports. Return the reason if the newest checkpoint is not stored."""
        self._activity = "copying its last checkpoint"
        seconds = self._context.container.job.timeouts.checkpoint

        def deadline() -> float:
            return self._stop_request.copy_until(ended_at, seconds)

        mirror, exports = self._mirror, self._exports
        exporting = asyncio.ensure_future(exports.finish(self._stop_request, deadline)) if exports else None
        problem = await mirror.finish(self._stop_request, deadline, succeeded=succeeded) if mirror else ""
        if exporting is not None:
            await exporting
        return problem

    async def _finish_shared(self, problem: str) -> None:
        shared = self._context.shared
        if shared is None or not self._is_leader or problem:
            return
        try:
            await asyncio.to_thread(shared.finished)
        except OSError as error:
            log.warning("cannot mark the shared checkpoint directory for removal, so it stays after the job: %s", error)

    async def _keep_results(self, exited: tony_pb2.ProcessExited) -> None:
        self._activity = "uploading"
        try:
            if self._is_leader:
                exited.model_dir = await keep_results(
                    self._context, self.order, self._stop_request, self._retries, self._warn
                )
            exited.outputs.extend(await self._outputs.keep())
        except Cancelled:
            exited.stopped = True
        except NotStoredError as error:
            exited.not_kept = replaced(str(error))

    async def _inspect_disk(self, exited: tony_pb2.ProcessExited) -> None:
        """Report a full disk, because the output of a process that fails for this reason seldom names it."""
        own = [self._context.workspace.root]
        if self._context.shared is None:  # a shared checkpoint directory is not on this node's disk
            own.append(self._context.checkpoints.path)
        for directory in own:
            problem = await asyncio.to_thread(disk_problem, directory)
            if problem and not exited.node_problem and not exited.stopped:
                exited.node_problem = problem

    async def _reported_step(self) -> Optional[int]:
        """Return the last step that the process reported in its metrics file, or None.

        Steps of event files do not count, because they may be epochs or restart from 0 at each start.
        """
        if not self._readers:
            return None
        async with self._reading:
            progress = await asyncio.to_thread(self._readers[0].reported, time.monotonic())
        return progress.step or None if progress else None

    def _warn(self, warning: str) -> None:
        """Add a warning to the log and the notices, once. May be called from any thread."""
        if warning not in self._left_out:
            self._left_out.append(warning)
            log.warning("%s", warning)
            self._context.output.note(replaced(warning))

    def _send_stacks(self, found: Sequence[tony_pb2.ProcessStack]) -> None:
        self._send(tony_pb2.FromExecutor(stacks=tony_pb2.Stacks(start=self.order.start, processes=found)))

    def _send_and_remember(self, message: tony_pb2.FromExecutor) -> None:
        self._remembered.append(message)
        self._send(message)


def _progress_readers(context: ExecutorContext) -> list[ProcessProgress]:
    """Return a reader for each of the processes, before they start. Blocks."""
    readers = []
    for local_rank, workspace in enumerate(context.workspaces):
        events = None
        if not context.container.shows_tensorboard:  # its directory holds the event files of other tasks
            others = [each.tensorboard for each in context.workspaces if each.local_rank > local_rank]
            events = EventScalars(workspace.tensorboard, others)
        reports = ProgressReader(workspace.metrics_file, list(context.container.user_secrets.values()))
        readers.append(ProcessProgress(reports, events))
    return readers


def _succeeded(exited: tony_pb2.ProcessExited) -> bool:
    return not (exited.exit_code or exited.signal or exited.error or exited.stopped)

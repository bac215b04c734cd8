"""The executor of one container: runs the user processes as the application master orders.

The module also contains the handling of SIGTERM and of newer store tokens, and the entry point ``main``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import signal
import socket
import time
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional

from tony_provider.runtime.application import ContainerError, open_application_store
from tony_provider.runtime.common import clock, contract, helper_processes
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_paths import CheckpointLink, SharedCheckpoints
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.gpus import ContainerGpus
from tony_provider.runtime.executor.heartbeat import HeartbeatContent
from tony_provider.runtime.executor.kept_results import largest_sent_log, read_log, send_last_words, upload_log
from tony_provider.runtime.executor.master_link import (
    MasterLink,
    MasterLinkError,
    MasterLocator,
    MasterRequests,
    RefusedError,
)
from tony_provider.runtime.executor.output import Output, answer_tail
from tony_provider.runtime.executor.ports import HeldPorts, PortError
from tony_provider.runtime.executor.process_start import ProcessStart
from tony_provider.runtime.executor.processes import become_subreaper
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.executor.task_outputs import event_file_transfer
from tony_provider.runtime.executor.workspace import JobFiles, Workspace
from tony_provider.runtime.frameworks.base import (
    MAIN_PORT,
    PREFLIGHT_PORT,
    VISIBLE_DEVICES,
    get_framework,
    port_of_process,
)
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.jobspec.model import MirrorScope
from tony_provider.runtime.protocol import limits, messages, tony_pb2
from tony_provider.runtime.protocol.store_tokens import OtherToken, StoreToken
from tony_provider.runtime.protocol.task_identity import IdentityError
from tony_provider.runtime.storage import StorageError

if TYPE_CHECKING:  # imported at the first use, because few jobs use tunnels or pages
    from tony_provider.runtime.executor.tunnel_ends import PageFetcher, TunnelEnds

log = logging.getLogger(__name__)


def use_new_token(context: ExecutorContext, newer: tony_pb2.NewerToken) -> None:
    """Use newer tokens of the store from now on. A failure is logged.

    User processes of jobs with access to Hadoop read the tokens from a file, which the next heartbeat updates.
    """
    others = [OtherToken(each.name, each.text, each.until_ms) for each in newer.others]
    token = StoreToken(newer.text, newer.until_ms, others)
    context.storage.take_token(token.text)
    for other in token.others:
        context.storage.take_token(other.text, other.name)
    try:
        context.container.credentials.take_store_token(token)
    except CredentialsError as error:
        log.warning("cannot pass the new store token to user processes: %s", error)
    else:
        log.info("received a new store token, valid until %s", moment(newer.until_ms))


_GRACE = 0.1  # seconds between SIGTERM and SIGKILL for the user process; YARN itself leaves 0.25 s
_KILL_TIMEOUT = 1.0  # seconds for the kernel to end the process after SIGKILL
_LAST_WORDS_TIMEOUT = 5.0  # seconds at most to send the last words; YARN's SIGKILL usually ends this earlier


class SigtermHandler:
    """Runs an executor's work until it is done, or until the executor gets SIGTERM.

    :param current: returns the current start of the user processes, or None.
    """

    def __init__(
        self, context: ExecutorContext, link: MasterLink, current: Callable[[], Optional[ProcessStart]]
    ) -> None:
        self._context = context
        self._link = link
        self._current = current
        self._terminated = asyncio.Event()

    async def work(self, work: Coroutine[Any, Any, int]) -> int:
        """Run the work. Return its exit code, or TERMINATED after SIGTERM. In both cases, kill all descendants."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._on_sigterm)
        working = asyncio.ensure_future(work)
        terminated = asyncio.ensure_future(self._terminated.wait())
        try:
            await asyncio.wait({working, terminated}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else await self._end_at_once()
        finally:
            await cancel_all(working, terminated)
            await processes.kill_all(os.getpid(), self._pids, _KILL_TIMEOUT)

    def _on_sigterm(self) -> None:
        current = self._current()
        if current is not None:
            current.stop_for_container_end(_GRACE)
        self._terminated.set()

    async def _end_at_once(self) -> int:
        log.warning("received SIGTERM, stopping the user processes")
        saying = asyncio.ensure_future(self._send_last_words())
        try:
            until = time.monotonic() + _GRACE
            await processes.stop_all(os.getpid(), self._pids, lambda: until)
            await asyncio.wait({saying}, timeout=_LAST_WORDS_TIMEOUT)
        finally:
            await cancel_all(saying)
        return contract.EXIT_TERMINATED

    async def _send_last_words(self) -> None:
        await send_last_words(self._context, self._link.send)
        await self._link.flush()

    @property
    def _pids(self) -> Collection[int]:
        current = self._current()
        return current.pids if current else ()


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended. Ignore their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_GOODBYE_TIMEOUT = 5.0  # seconds for the last messages to reach the application master
_LAST_EVENT_FILES = 10.0  # seconds for the last event files, while the log is uploaded


class Executor:
    """The executor of one container, which follows the orders of the application master.

    Call ``run`` once. It returns the exit code for the process, a constant EXIT_… of contract.py.
    """

    def __init__(self, container: ExecutorContainer, context: ExecutorContext) -> None:
        """Create the executor. Raises task_identity.MissingSecretError."""
        self._container = container
        self._context = context
        self._where = MasterLocator(container, context.storage)
        self._link = MasterLink(container, self._where, self._greeting, self._handle)
        self._requests = MasterRequests(self._link.send)
        self._tunnel: Optional[PageFetcher] = None  # created for the first page
        self._tunnel_ends: Optional[TunnelEnds] = None  # created for the first tunnel
        self._event_files = event_file_transfer(context)
        self._pulse = HeartbeatContent(context)
        self._beat_seconds = limits.HEARTBEAT_INTERVAL
        self._newest: Optional[ProcessStart] = None  # newest start; may still wait for the end of ``_current``
        self._next: asyncio.Queue[ProcessStart] = asyncio.Queue()
        self._current: Optional[ProcessStart] = None
        self._background_tasks: set[asyncio.Future[None]] = set()
        self._shutdown = asyncio.Event()
        self._last_words: list[tony_pb2.FromExecutor] = []  # the log, once the container ends
        self._activity = "waiting"

    async def run(self) -> int:
        return await SigtermHandler(self._context, self._link, lambda: self._current).work(self._work())

    async def _work(self) -> int:
        link = asyncio.ensure_future(self._link.run())
        beating = asyncio.ensure_future(self._beat())
        running = asyncio.ensure_future(self._run_one_after_the_other())
        shutdown = asyncio.ensure_future(self._shutdown.wait())
        self._event_files.start()
        everything = (link, beating, running, shutdown)
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            code = self._verdict(link, beating, running)
            await self._wind_down(running, link)
        finally:
            if self._tunnel_ends is not None:
                await self._tunnel_ends.close()
            await cancel_all(*everything, *self._background_tasks)
            await self._event_files.close()
        return code

    @staticmethod
    def _verdict(link: asyncio.Future[None], *others: asyncio.Future[None]) -> int:
        """Return the exit code for the end of the work. Raise internal errors."""
        for task in others:
            if task.done():
                task.result()
        if not link.done():
            return contract.EXIT_OK
        try:
            link.result()
        except MasterLinkError as error:
            log.error("%s", error)  # noqa: TRY400 - the traceback adds nothing
            return contract.EXIT_REFUSED if isinstance(error, RefusedError) else contract.EXIT_MASTER_LOST
        return contract.EXIT_OK

    async def _wind_down(self, running: asyncio.Future[None], link: asyncio.Future[None]) -> None:
        """Stop the running processes, upload their output, and close the stream if the master is connected."""
        self._shutdown.set()  # prevents further starts
        if self._current is not None:
            timeouts = self._container.job.timeouts
            self._current.stop(timeouts.grace, 0.0 if link.done() else timeouts.checkpoint)
            over: asyncio.Future[Any] = asyncio.ensure_future(self._current.over.wait())
            await asyncio.wait({over, running}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
        self._activity = "uploading its log"
        data = await read_log(self._context)
        is_sent = bool(data) and not link.done() and len(data) <= largest_sent_log(self._context)
        if is_sent:
            self._last_words = [tony_pb2.FromExecutor(last_words=tony_pb2.LastWords(output=data))]
            self._link.send(*self._last_words)
        uploading = upload_log(self._context, b"" if is_sent else data)
        await asyncio.gather(uploading, self._event_files.finish(_LAST_EVENT_FILES))
        self._link.finish()
        await asyncio.wait({link}, timeout=_GOODBYE_TIMEOUT)
        if is_sent and not self._link.delivered:
            await upload_log(self._context, data)

    # ---- messages of the master --------------------------------------------------------------------------------

    def _greeting(self) -> list[tony_pb2.FromExecutor]:
        newest, current = self._newest, self._current
        registration = tony_pb2.Registration(
            host=self._container.host,
            ports=self._context.ports.numbers,
            node=self._container.node,
            python=platform.python_version(),
            pid=os.getpid(),
            generation=newest.order.generation if newest else 0,
            start=newest.order.start if newest else 0,
            resumed=messages.resume_message(newest.order.resume) if newest else None,
            shards=current.held_shards if current else None,
            clock_ms=time.time_ns() // 1_000_000,  # the node's clock, without the correction by ``clock.follow``
        )
        return [
            tony_pb2.FromExecutor(registration=registration),
            *(current.replay if current else ()),
            *self._requests.open,
            *self._last_words,
        ]

    def _handle(self, message: tony_pb2.ToExecutor) -> None:
        handlers: dict[Optional[str], Callable[[Any], None]] = {
            "welcome": self._on_welcome,
            "rendezvous": self._on_rendezvous,
            "stop": self._on_stop,
            "shutdown": self._on_shutdown,
            "checkpoint": self._requests.answered,
            "input_part": self._requests.answered,
            "shard_answer": self._requests.answered,
            "checkpoint_now": self._on_checkpoint_now,
            "export_now": self._on_export_now,
            "take_snapshot": self._on_take_snapshot,
            "newer_token": lambda new: self._run_in_background(asyncio.to_thread(use_new_token, self._context, new)),
            "page_wanted": lambda wanted: self._run_in_background(self._tunnel_to_tensorboard().answer(wanted)),
            "tunnel": lambda data: self._ends_of_tunnels().take(data),
            "tail_wanted": lambda wanted: self._run_in_background(
                answer_tail(self._context.output, wanted, self._link.send)
            ),
        }
        kind = message.WhichOneof("kind")
        if kind in handlers:
            handlers[kind](getattr(message, kind))
        else:
            log.warning("ignoring a message of an unknown kind from the application master")

    def _on_welcome(self, welcome: tony_pb2.Welcome) -> None:
        self._where.record_attempt(welcome.am_attempt)
        if self._tunnel_ends is not None:
            self._tunnel_ends.begin()
        self._beat_seconds = welcome.heartbeat_seconds or limits.HEARTBEAT_INTERVAL
        ahead = welcome.clock_ms / 1000 - time.time() if welcome.clock_ms else None
        clock.follow(ahead if ahead is not None and abs(ahead) > limits.CLOCKS_DIFFER else None)

    def _tunnel_to_tensorboard(self) -> PageFetcher:
        if self._tunnel is None:
            from tony_provider.runtime.executor.tunnel_ends import PageFetcher

            port = self._context.ports.numbers[MAIN_PORT]
            self._tunnel = PageFetcher(self._link, port, self._container.tensorboard_path)
        return self._tunnel

    def _ends_of_tunnels(self) -> TunnelEnds:
        if self._tunnel_ends is None:
            from tony_provider.runtime.executor.tunnel_ends import TunnelEnds

            container, ports = self._container, self._context.ports.numbers
            self._tunnel_ends = TunnelEnds(self._link, ports, container.job.port_range, container.host)
        return self._tunnel_ends

    def _on_rendezvous(self, rendezvous: tony_pb2.Rendezvous) -> None:
        order = StartOrder.of_message(rendezvous)
        if self._shutdown.is_set() or (self._newest is not None and order.start <= self._newest.order.start):
            return  # the master repeats the message after a reconnection
        if self._newest is not None:
            self._newest.stop(self._container.job.timeouts.grace, 0.0)
        self._newest = ProcessStart(self._context, order, self._requests, self._link.send)
        self._next.put_nowait(self._newest)

    def _on_stop(self, stop: tony_pb2.StopProcess) -> None:
        log.info(
            "the application master ordered this executor to stop start %d (generation %d): %s",
            stop.start,
            stop.generation,
            stop.reason,
        )
        if self._newest is not None and self._newest.order.start == stop.start:
            self._newest.stop(stop.grace_seconds, stop.checkpoint_seconds, stacks=stop.stacks)

    def _on_shutdown(self, shutdown: tony_pb2.Shutdown) -> None:
        log.info("the application master ordered this executor to end: %s", shutdown.reason)
        if self._current is not None:
            self._current.stop(shutdown.grace_seconds, self._container.job.timeouts.checkpoint)
        self._shutdown.set()

    def _on_checkpoint_now(self, wanted: tony_pb2.CheckpointNow) -> None:
        log.info("the application master requests a checkpoint: %s", wanted.reason)
        self._run_in_background(self._request_checkpoint(wanted.reason))

    def _on_export_now(self, wanted: tony_pb2.ExportNow) -> None:
        log.info("the application master requests an export of the model: %s", wanted.reason)
        if self._current is not None:
            self._run_in_background(self._current.ask_export(wanted))

    def _on_take_snapshot(self, wanted: tony_pb2.TakeSnapshot) -> None:
        if self._current is not None:
            self._current.take_snapshot(wanted)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _request_checkpoint(self, reason: str) -> None:
        # In a gang only rank 0 is notified, and in a container only the first process, unless every rank stores files.
        every = self._container.job.checkpoint.mirror is MirrorScope.ALL
        asked = self._context.workspaces if every else [self._context.workspace]
        try:
            for workspace in asked:
                await asyncio.to_thread(workspace.request_checkpoint, reason)
        except OSError as error:
            log.warning("cannot request a checkpoint from the user process: %s", error)
        if self._current is not None:
            self._current.inspect_checkpoints()

    # ---- background tasks --------------------------------------------------------------------------------------

    async def _run_one_after_the_other(self) -> None:
        while True:
            run = await self._next.get()
            if self._next.empty() and not self._shutdown.is_set():
                self._current = run
                await run.run()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            heartbeat = await self._pulse.take(self._current, self._activity, ending=self._shutdown.is_set())
            if self._link.is_idle:
                self._link.send(tony_pb2.FromExecutor(heartbeat=heartbeat))


def main(guard: Optional[socket.socket] = None) -> NoReturn:
    """Run the executor of this container, and end the process. ``guard``: the socket of ``processes.start_guard``."""
    gc.freeze()  # see launch/start.py
    gc.enable()
    helper_processes.configure_log()
    try:
        code = asyncio.new_event_loop().run_until_complete(_run(guard))
    except Exception:
        log.exception("internal error in the executor")
        code = contract.EXIT_INTERNAL
    # A regular exit would wait for transfers that may hang until their deadlines.
    logging.shutdown()
    os._exit(code)


async def _run(guard: Optional[socket.socket]) -> int:
    try:
        container = ExecutorContainer.of_process(os.environ, Path.cwd())
        context = open_context(container, guard)
        executor = Executor(container, context)
    except (ContainerError, PortError, IdentityError, LookupError, StorageError, OSError, ValueError) as error:
        log.error("the executor cannot start: %s", error)  # noqa: TRY400 - the message is complete
        return contract.EXIT_BAD_CONTAINER
    try:
        return await executor.run()
    finally:
        context.close()


def open_context(container: ExecutorContainer, guard: Optional[socket.socket]) -> ExecutorContext:
    """Prepare the workspace, reserve ports and open the store. Raises PortError, StorageError, OSError."""
    become_subreaper()
    shared = container.description.shared_checkpoints
    workspace = Workspace(container.directory, shared=Path(shared) if shared else None)
    workspace.prepare()
    if container.shows_tensorboard:
        workspace.prepare_tensorboard()
    framework = get_framework(container.job.framework)
    hadoop = None
    if container.job.hadoop:
        from tony_provider.runtime.executor.hadoop_access import HadoopAccess  # few jobs need its XML parser

        hadoop = HadoopAccess(container, workspace.hadoop)
    storage = open_application_store(container.description, container.secrets)
    return ExecutorContext(
        container=container,
        workspace=workspace,
        ports=HeldPorts(
            [
                port_of_process(name, local_rank)
                for local_rank in range(container.process_count)
                for name in framework.ports(container.task_type, container.role)
            ]
            + ([] if container.job.preflight is False else [PREFLIGHT_PORT]),
            container.job.port_range,
            share=framework.shares_ports(container.role),
        ),
        output=Output.of(container.log_dir, workspace.root, container.job.logs.max_size, container.process_count),
        storage=storage,
        checkpoints=CheckpointDirectory(container, workspace, storage),
        checkpoint_link=CheckpointLink(container.description, container.identity.task, workspace.checkpoints, guard),
        files=JobFiles.of(container),
        hadoop=hadoop,
        shared=SharedCheckpoints(Path(shared), container.description.application_id, guard) if shared else None,
        gpus=_gpus(container, guard),
    )


def _gpus(container: ExecutorContainer, guard: Optional[socket.socket]) -> Optional[ContainerGpus]:
    """Return the container's GPUs; None if they are not assigned, or if the job sets CUDA_VISIBLE_DEVICES itself."""
    dealing = container.description.gpu_dealing
    if dealing is None or VISIBLE_DEVICES in {**container.job.env, **container.spec.env}:
        return None
    return ContainerGpus(dealing, container.spec.gpus, container.environ, guard)

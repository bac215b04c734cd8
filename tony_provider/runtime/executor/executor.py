"""The executor of one container: obeys its application master, and runs one start of its task after the other."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Optional

from tony_provider.runtime import clock, exit_codes
from tony_provider.runtime.executor.commit_requests import CommitRequests
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.heartbeat_content import HeartbeatContent
from tony_provider.runtime.executor.input_requests import InputRequests
from tony_provider.runtime.executor.kept_log import keep_log
from tony_provider.runtime.executor.link import Link, LinkError, RefusedError
from tony_provider.runtime.executor.master_locator import MasterLocator
from tony_provider.runtime.executor.newer_token import take_newer_token
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.output_tails import answer_tail
from tony_provider.runtime.executor.run import Run
from tony_provider.runtime.executor.sigterm import SigtermHandler, cancel
from tony_provider.runtime.executor.tensorboard.container_role import event_files
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.protocol import points, timing, tony_pb2
from tony_provider.runtime.spec.model import MirrorScope

if TYPE_CHECKING:  # imported at the first use, because few jobs have one
    from tony_provider.runtime.executor.tensorboard.tunnel import Tunnel
    from tony_provider.runtime.executor.tunnel_ends import TunnelEnds

log = logging.getLogger(__name__)

_GOODBYE_TIMEOUT = 5.0  # seconds for the last messages to reach the application master
_LAST_EVENT_FILES = 10.0  # seconds, while the log goes to the store


class Executor:
    """The executor of one container, at work for its application master.

    ``run`` it once; returns the exit code for the process, one of ``exit_codes``.
    """

    def __init__(self, container: ExecutorContainer, context: ExecutorContext) -> None:
        """Raises task_identity.MissingSecretError."""
        self._container = container
        self._context = context
        self._where = MasterLocator(container, context.storage)
        self._link = Link(container, self._where, self._greeting, self._handle)
        self._commit_requests = CommitRequests(self._link.send)
        self._input_requests = InputRequests(self._link.send)
        self._tunnel: Optional[Tunnel] = None  # created for the first page
        self._tunnel_ends: Optional[TunnelEnds] = None  # created for the first tunnel
        self._event_files = event_files(context)
        self._pulse = HeartbeatContent(context)
        self._beat_seconds = timing.HEARTBEAT_INTERVAL
        self._newest: Optional[Run] = None  # that a rendezvous came for; it may be waiting for its turn
        self._next: asyncio.Queue[Run] = asyncio.Queue()
        self._current: Optional[Run] = None
        self._errands: set[asyncio.Future[None]] = set()
        self._shutdown = asyncio.Event()
        self._activity = "waiting"

    async def run(self) -> int:
        return await SigtermHandler(self._context, self._link, lambda: self._current).work(self._work())

    async def _work(self) -> int:
        link = asyncio.ensure_future(self._link.run())
        beating = asyncio.ensure_future(self._beat())
        running = asyncio.ensure_future(self._run_one_after_the_other())
        shutdown = asyncio.ensure_future(self._shutdown.wait())
        copying = asyncio.ensure_future(self._event_files.run())
        everything = (link, beating, running, shutdown, copying)
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            code = self._verdict(link, beating, running, copying)
            await self._wind_down(running, link)
        finally:
            if self._tunnel_ends is not None:
                await self._tunnel_ends.close()
            await cancel(*everything, *self._errands)
        return code

    @staticmethod
    def _verdict(link: asyncio.Future[None], *others: asyncio.Future[None]) -> int:
        """Why the work is over: the exit code for it. Raises what is a fault of ours."""
        for task in others:
            if task.done():
                task.result()
        if not link.done():
            return exit_codes.OK
        try:
            link.result()
        except LinkError as error:
            log.error("%s", error)  # noqa: TRY400 - its trace tells nothing more
            return exit_codes.REFUSED if isinstance(error, RefusedError) else exit_codes.MASTER_LOST
        return exit_codes.OK

    async def _wind_down(self, running: asyncio.Future[None], link: asyncio.Future[None]) -> None:
        """Stop what runs, keep its output on the store, and take leave of the master where there is one."""
        self._shutdown.set()  # no other start
        if self._current is not None:
            timeouts = self._container.job.timeouts
            self._current.stop(timeouts.grace, 0.0 if link.done() else timeouts.checkpoint)
            over: asyncio.Future[Any] = asyncio.ensure_future(self._current.over.wait())
            await asyncio.wait({over, running}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
        self._activity = "keeping its log"
        await asyncio.gather(keep_log(self._context), self._event_files.finish(_LAST_EVENT_FILES))
        self._link.finish()
        await asyncio.wait({link}, timeout=_GOODBYE_TIMEOUT)

    # ---- what the master says ----------------------------------------------------------------------------------

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
            resumed=points.message(newest.order.resume) if newest else None,
            shards=current.held_shards if current else None,
            clock_ms=time.time_ns() // 1_000_000,  # of the node, whatever clock this process follows
        )
        said = current.said if current else []
        return [
            tony_pb2.FromExecutor(registration=registration),
            *said,
            *self._commit_requests.open,
            *self._input_requests.open,
        ]

    def _handle(self, message: tony_pb2.ToExecutor) -> None:
        kind = message.WhichOneof("kind")
        if kind == "welcome":
            self._on_welcome(message.welcome)
        elif kind == "rendezvous":
            self._on_rendezvous(message.rendezvous)
        elif kind == "stop":
            self._on_stop(message.stop)
        elif kind == "shutdown":
            self._on_shutdown(message.shutdown)
        elif kind == "checkpoint":
            self._commit_requests.answered(message.checkpoint)
        elif kind in ("input_part", "shard_answer"):
            self._input_requests.answered(message)
        elif kind == "checkpoint_now":
            self._on_checkpoint_now(message.checkpoint_now)
        elif kind == "export_now":
            self._on_export_now(message.export_now)
        elif kind == "take_snapshot":
            if self._current is not None:
                self._current.take_snapshot(message.take_snapshot)
        elif kind == "newer_token":
            self._send_on_errand(asyncio.to_thread(take_newer_token, self._context, message.newer_token))
        elif kind == "page_wanted":
            self._send_on_errand(self._tunnel_to_tensorboard().answer(message.page_wanted))
        elif kind == "tunnel":
            self._ends_of_tunnels().take(message.tunnel)
        elif kind == "tail_wanted":
            self._send_on_errand(answer_tail(self._context.output, message.tail_wanted, self._link.send))
        else:
            log.warning("a message of an unknown kind from the application master is ignored")

    def _on_welcome(self, welcome: tony_pb2.Welcome) -> None:
        self._where.met(welcome.am_attempt)
        if self._tunnel_ends is not None:
            self._tunnel_ends.begin()
        self._beat_seconds = welcome.heartbeat_seconds or timing.HEARTBEAT_INTERVAL
        ahead = welcome.clock_ms / 1000 - time.time() if welcome.clock_ms else None
        clock.follow(ahead if ahead is not None and abs(ahead) > timing.CLOCKS_DIFFER else None)

    def _tunnel_to_tensorboard(self) -> Tunnel:
        if self._tunnel is None:
            from tony_provider.runtime.executor.tensorboard.tunnel import Tunnel

            port = self._context.ports.numbers[MAIN_PORT]
            self._tunnel = Tunnel(self._link, port, self._container.tensorboard_path)
        return self._tunnel

    def _ends_of_tunnels(self) -> TunnelEnds:
        if self._tunnel_ends is None:
            from tony_provider.runtime.executor.tunnel_ends import TunnelEnds

            container, ports = self._container, self._context.ports.numbers
            self._tunnel_ends = TunnelEnds(self._link, ports, container.job.port_range, container.host)
        return self._tunnel_ends

    def _on_rendezvous(self, rendezvous: tony_pb2.Rendezvous) -> None:
        order = Order.of_message(rendezvous)
        if self._shutdown.is_set() or (self._newest is not None and order.start <= self._newest.order.start):
            return  # said again after a reconnection
        if self._newest is not None:
            self._newest.stop(self._container.job.timeouts.grace, 0.0)
        self._newest = Run(self._context, order, self._commit_requests, self._input_requests, self._link.send)
        self._next.put_nowait(self._newest)

    def _on_stop(self, stop: tony_pb2.StopProcess) -> None:
        log.info("told to stop start %d (generation %d): %s", stop.start, stop.generation, stop.reason)
        if self._newest is not None and self._newest.order.start == stop.start:
            self._newest.stop(stop.grace_seconds, stop.checkpoint_seconds, stacks=stop.stacks)

    def _on_shutdown(self, shutdown: tony_pb2.Shutdown) -> None:
        log.info("told to end: %s", shutdown.reason)
        if self._current is not None:
            self._current.stop(shutdown.grace_seconds, self._container.job.timeouts.checkpoint)
        self._shutdown.set()

    def _on_checkpoint_now(self, wanted: tony_pb2.CheckpointNow) -> None:
        log.info("a checkpoint is wanted: %s", wanted.reason)
        self._send_on_errand(self._request_checkpoint(wanted.reason))

    def _on_export_now(self, wanted: tony_pb2.ExportNow) -> None:
        log.info("an export of the model is wanted: %s", wanted.reason)
        if self._current is not None:
            self._send_on_errand(self._current.ask_export(wanted))

    def _send_on_errand(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _request_checkpoint(self, reason: str) -> None:
        # Of several processes the first alone, as rank 0 alone of a gang, unless each rank may save its part.
        every = self._container.job.checkpoint.mirror is MirrorScope.ALL
        asked = self._context.workspaces if every else [self._context.workspace]
        try:
            for workspace in asked:
                await asyncio.to_thread(workspace.request_checkpoint, reason)
        except OSError as error:
            log.warning("the user process cannot be asked for a checkpoint: %s", error)
        if self._current is not None:
            self._current.look_for_checkpoint()

    # ---- what goes on by itself --------------------------------------------------------------------------------

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
            if self._link.idle:
                self._link.send(tony_pb2.FromExecutor(heartbeat=heartbeat))

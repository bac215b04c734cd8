"""The executor of one container: obeys its application master, runs one generation after the other."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import time
from typing import Any, Optional

from tony_provider.runtime import exit_codes
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.container import Container
from tony_provider.runtime.executor.generation import Generation, Surroundings
from tony_provider.runtime.executor.kept_log import keep_log
from tony_provider.runtime.executor.link import Link, LinkError, RefusedError
from tony_provider.runtime.executor.ports import PortError
from tony_provider.runtime.executor.pulse import Pulse
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.protocol import timing, tony_pb2
from tony_provider.runtime.spec.model import Role

log = logging.getLogger(__name__)

_GOODBYE_PATIENCE = 5.0  # seconds for the last messages to reach the application master
_TERM_GRACE = 0.1  # seconds between SIGTERM and SIGKILL when SIGTERM came to us: YARN itself leaves 0.25
_TERM_PATIENCE = 1.0  # seconds for the kernel then


class Executor:
    """``run`` it once; returns the exit code for the process, one of ``exit_codes``."""

    def __init__(
        self, container: Container, surroundings: Surroundings, *, lost_after: float = timing.MASTER_LOST_AFTER
    ) -> None:
        """``lost_after``: seconds without the application master after which the user process is stopped."""
        self._container = container
        self._its = surroundings
        self._link = Link(container, self._greeting, self._handle, lost_after=lost_after)
        self._pulse = Pulse()
        self._newest = 0  # generation that a rendezvous came for
        self._never_start = 0  # generation that was to be stopped before its turn came
        self._waiting: asyncio.Queue[ClusterSpec] = asyncio.Queue()
        self._current: Optional[Generation] = None
        self._shutdown = asyncio.Event()
        self._terminated = asyncio.Event()
        self._activity = "waiting"

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._on_sigterm)
        working = asyncio.ensure_future(self._work())
        killing = asyncio.ensure_future(self._terminated.wait())
        try:
            await asyncio.wait({working, killing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            log.warning("terminated")
            await self._die_at_once()
            return exit_codes.TERMINATED
        finally:
            await _cancel(working, killing)
            await processes.kill_all(os.getpid(), self._pid, _TERM_PATIENCE)

    def _on_sigterm(self) -> None:
        if self._current is not None:
            self._current.doom(_TERM_GRACE)
        self._terminated.set()

    @property
    def _pid(self) -> Optional[int]:
        return self._current.pid if self._current else None

    async def _die_at_once(self) -> None:
        until = time.monotonic() + _TERM_GRACE
        await processes.stop_all(os.getpid(), self._pid, lambda: until)

    async def _work(self) -> int:
        link = asyncio.ensure_future(self._link.run())
        beating = asyncio.ensure_future(self._beat())
        generations = asyncio.ensure_future(self._run_generations())
        shutdown = asyncio.ensure_future(self._shutdown.wait())
        everything = (link, beating, generations, shutdown)
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            code = self._verdict(link, beating, generations)
            await self._wind_down(generations, link)
        finally:
            await _cancel(*everything)
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

    async def _wind_down(self, generations: asyncio.Future[None], link: asyncio.Future[None]) -> None:
        """Stop what runs, keep its output on the store, and take leave of the master where there is one."""
        self._shutdown.set()  # no other generation
        if self._current is not None:
            self._current.stop(self._container.job.timeouts.grace)
            over: asyncio.Future[Any] = asyncio.ensure_future(self._current.over.wait())
            await asyncio.wait({over, generations}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
        self._activity = "keeping its log"
        await keep_log(self._its)
        self._link.finish()
        await asyncio.wait({link}, timeout=_GOODBYE_PATIENCE)

    # ---- what the master says ----------------------------------------------------------------------------------

    def _greeting(self) -> list[tony_pb2.FromExecutor]:
        registration = tony_pb2.Registration(
            host=self._container.host,
            ports=self._its.ports.numbers,
            node=self._container.node,
            python=platform.python_version(),
            pid=os.getpid(),
            generation=self._newest,
        )
        greeting = [tony_pb2.FromExecutor(registration=registration)]
        current = self._current
        if current is not None and current.started is not None:
            greeting.append(tony_pb2.FromExecutor(started=current.started))
        if current is not None and current.exited is not None:
            greeting.append(tony_pb2.FromExecutor(exited=current.exited))
        return greeting

    def _handle(self, message: tony_pb2.ToExecutor) -> None:
        kind = message.WhichOneof("kind")
        if kind == "rendezvous":
            self._on_rendezvous(message.rendezvous)
        elif kind == "stop":
            self._on_stop(message.stop)
        elif kind == "shutdown":
            self._on_shutdown(message.shutdown)
        else:
            log.warning("a message of an unknown kind from the application master is ignored")

    def _on_rendezvous(self, rendezvous: tony_pb2.Rendezvous) -> None:
        if rendezvous.generation <= self._newest or self._shutdown.is_set():
            return  # said again after a reconnection
        self._newest = rendezvous.generation
        if self._current is not None:
            self._current.stop(self._container.job.timeouts.grace)
        self._waiting.put_nowait(_cluster(rendezvous))

    def _on_stop(self, stop: tony_pb2.StopProcess) -> None:
        log.info("told to stop generation %d: %s", stop.generation, stop.reason)
        if self._current is not None and self._current.number == stop.generation:
            self._current.stop(stop.grace_seconds)
        elif stop.generation == self._newest:
            self._never_start = stop.generation

    def _on_shutdown(self, shutdown: tony_pb2.Shutdown) -> None:
        log.info("told to end: %s", shutdown.reason)
        if self._current is not None:
            self._current.stop(shutdown.grace_seconds)
        self._shutdown.set()

    # ---- what goes on by itself --------------------------------------------------------------------------------

    async def _run_generations(self) -> None:
        while True:
            cluster = await self._waiting.get()
            if not self._waiting.empty() or self._shutdown.is_set():
                continue  # a newer one waits, or none is wanted any more
            self._current = Generation(self._its, cluster, self._link.send)
            if self._never_start == cluster.generation:
                self._current.stop(0)
            await self._current.run()
            try:
                self._its.ports.take_back()
            except PortError as error:
                log.warning("%s", error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(timing.HEARTBEAT_INTERVAL)
            heartbeat = await self._pulse.take(self._current, self._activity, ending=self._shutdown.is_set())
            if self._link.idle:
                self._link.send(tony_pb2.FromExecutor(heartbeat=heartbeat))


def _cluster(rendezvous: tony_pb2.Rendezvous) -> ClusterSpec:
    return ClusterSpec(
        rendezvous.generation,
        tuple(
            TaskAddress(task.type, task.index, Role(task.role), task.host, dict(task.ports))
            for task in rendezvous.tasks
        ),
    )


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

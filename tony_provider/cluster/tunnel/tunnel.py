"""A tunnel from a port of this machine's loopback to a server of a job's task."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from tony_provider.cluster.base import Cluster
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.tunnel.carrier import Carrier, expect_running, in_thread
from tony_provider.cluster.tunnel.errors import TunnelEnded, TunnelLost
from tony_provider.runtime.listeners import peer_users
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import TUNNEL_STREAMS
from tony_provider.runtime.sealed.tls_pipe import PipeError
from tony_provider.runtime.tunnel.relay import Relay

HOST = "127.0.0.1"
_GOODBYE = 5.0  # seconds
_LOOK = 0.2  # seconds between two looks whether anybody waits still


class TaskTunnel:
    """A listening port of this machine, whose connections lead to a port of a task. A context manager.

    It runs in a thread of its own. Only processes of this user are let through: others of this machine could reach the
    port, too.
    """

    def __init__(
        self,
        cluster: Cluster,
        application_id: str,
        authority: str,
        task: str,
        port: int = 0,
        *,
        local_port: int = 0,
        tell: Callable[[str], None] = lambda news: None,
        over: threading.Event | None = None,
    ) -> None:
        """``port``: of the task, 0: the first that it was given; ``local_port``: 0: any that is free.

        ``authority``: PEM, the certificate that vouches for the master. ``tell`` gets news for people, from the
        tunnel's thread. ``over``: once it is set, nobody waits any more for a tunnel that is not open yet.
        """
        self._cluster = cluster
        self._application_id = application_id
        self._authority = authority
        self._open = tony_pb2.TunnelOpen(task=task, port=port)
        self._local_port = local_port
        self._tell = tell
        self._unwanted = over or threading.Event()
        self._numbers = itertools.count(1)
        self._relays: dict[int, Relay] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._carrier: Carrier | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._over = threading.Event()
        self._problem: Exception | None = None
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="tunnel", daemon=True)

    @property
    def port(self) -> int:
        """Of this machine."""
        return self._local_port

    def __enter__(self) -> TaskTunnel:
        """Returns once connections go through, or nobody waits for that any more.

        Raises ClusterError, OSError for a port that is taken.
        """
        self._thread.start()
        while not self._ready.wait(_LOOK) and not self._unwanted.is_set():
            pass
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._work is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join(_GOODBYE)

    def wait(self, seconds: float) -> bool:
        """Wait so long for its end; whether it has ended. Raises why: ClusterError."""
        over = self._over.wait(seconds)
        if over and self._problem is not None:
            raise self._problem
        return over

    # ---- in its thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except (ClusterError, OSError) as error:
            self._problem = error
        except PipeError as error:
            self._problem = TunnelEnded(str(error))
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            self._problem = error
        finally:
            self._over.set()
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.current_task()
        server = await asyncio.start_server(self._accept, HOST, self._local_port)
        try:
            self._local_port = server.sockets[0].getsockname()[1]
            await self._carry()
        finally:
            server.close()
            await self._close_connections()
            if self._carrier is not None:
                await self._carrier.say_goodbye()

    async def _carry(self) -> None:
        """One tunnel after the other, as long as the application runs."""
        while True:
            self._carrier = carrier = Carrier(self._cluster, self._application_id, self._authority, self._hear)
            carrying = asyncio.ensure_future(carrier.run())
            opened = asyncio.ensure_future(carrier.is_open.wait())
            try:
                await asyncio.wait({carrying, opened}, return_when=asyncio.FIRST_COMPLETED)
                if not carrying.done():
                    self._ready.set()
                await carrying
            except TunnelLost as error:
                await in_thread(lambda: expect_running(self._cluster, self._application_id))
                self._tell(f"the tunnel was interrupted, and is opened again: {error}")
                await self._close_connections()
            finally:
                opened.cancel()
                carrying.cancel()
                await asyncio.gather(carrying, opened, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a callback of asyncio's server
        self._connections.add(task)
        try:
            await self._pass_through(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's server would complain
        finally:
            self._connections.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _pass_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrier = self._carrier
        if carrier is None or not carrier.is_open.is_set():
            return
        if await asyncio.to_thread(peer_users, writer.get_extra_info("socket")) != {os.getuid()}:
            self._tell_once("a process of another user of this machine was not let through")
            return
        if len(self._relays) >= TUNNEL_STREAMS:
            self._tell_once(f"more than {TUNNEL_STREAMS} connections at once are not let through")
            return
        number = next(self._numbers)
        relay = self._relays[number] = Relay(number, lambda frame: carrier.send([frame]))
        try:
            carrier.send([tony_pb2.TunnelFrame(stream=number, open=self._open)])
            await relay.run(reader, writer)
        finally:
            del self._relays[number]
            if relay.why:
                self._tell_once(relay.why)

    def _hear(self, frame: tony_pb2.TunnelFrame) -> None:
        if (relay := self._relays.get(frame.stream)) is not None:
            relay.take(frame)

    async def _close_connections(self) -> None:
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _tell_once(self, news: str) -> None:
        if news not in self._told:
            self._told.add(news)
            self._tell(news)

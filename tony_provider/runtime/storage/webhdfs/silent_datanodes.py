"""DataNodes that do not answer: found within seconds, and avoided for a while.

The kernel of a node accepts connections and bytes for a process that hangs. So if a transfer stands still for a few
seconds, the DataNode is probed on another connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

from tony_provider.runtime.storage.webhdfs.namenodes import ROOT
from tony_provider.runtime.storage.webhdfs.transport import BROKEN, Deadline, Transport, set_timeout
from tony_provider.runtime.storage.webhdfs.watched_socket import watch

log = logging.getLogger(__name__)

_AVOIDED = 300.0  # seconds in which a DataNode that was silent is not used while there is another one
_PROBES = 3  # at once, since a transfer that hangs blocks one of the DataNode's threads, which a probe may get, too
_PROBE_PATH = f"{ROOT}/?op=GETHOMEDIRECTORY"  # a DataNode rejects it without asking the NameNode


class DataNodeSilentError(TimeoutError):
    """A DataNode does not answer."""


class SilentDataNodes:
    """Remembers DataNodes that were silent, for all threads that use a storage."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}  # by host
        self._pipelines_until = float("-inf")
        self._few_replicas = True  # whether HDFS permits files with one replica

    @property
    def hosts(self) -> list[str]:
        """The hosts of DataNodes to avoid."""
        with self._lock:
            return [host for host, until in self._until.items() if until > self._clock()]

    @property
    def may_block_writes(self) -> bool:
        """Whether files should be written with one replica first, because DataNodes that hang block pipelines."""
        hosts = self.hosts
        with self._lock:
            return self._few_replicas and (bool(hosts) or self._pipelines_until > self._clock())

    def add(self, host: str) -> None:
        with self._lock:
            self._until[host] = self._clock() + _AVOIDED
        log.warning("DataNode %s does not answer; others are used for the next %g s", host, _AVOIDED)

    def answers(self, host: str) -> None:
        """Stop avoiding a DataNode."""
        with self._lock:
            self._until.pop(host, None)

    def pipeline_hung(self) -> None:
        """Write files with one replica for a while."""
        log.warning("a write to HDFS stands still; files are written with one replica first for %g s", _AVOIDED)
        with self._lock:
            self._pipelines_until = self._clock() + _AVOIDED

    def refuse_few_replicas(self) -> None:
        """Do not ask for one replica again, because HDFS has refused it (``dfs.namenode.replication.min``)."""
        with self._lock:
            self._few_replicas = False

    def watch(self, connection: HTTPConnection, url: str, patience: float) -> None:
        """Have the waits of an open connection end with DataNodeSilentError if the DataNode does not answer probes.

        ``patience``: seconds without a byte until they end with SilenceTimeoutError although it does.
        """
        watch(connection, patience, self._silence, lambda: self._check(url))

    @property
    def _silence(self) -> float:
        return self._transport.config.silence_timeout

    def _check(self, url: str) -> None:
        """Raise DataNodeSilentError if the DataNode of a URL answers nothing."""
        with ThreadPoolExecutor(_PROBES, "tony-probe") as pool:
            answers = list(pool.map(self._probe, [url] * _PROBES))
        if not any(answers):
            raise DataNodeSilentError("it does not answer")

    def _probe(self, url: str) -> bool:
        parts = urlsplit(url)
        deadline = Deadline(self._silence / 2)
        try:
            with closing(self._transport.connect(url, deadline)) as connection:
                set_timeout(connection, deadline.left())
                connection.request("GET", f"{parts.path.partition(ROOT)[0]}{_PROBE_PATH}")
                connection.getresponse()
        except BROKEN as error:
            log.debug("the probe of %s: %s", parts.netloc, error)
            return False
        return True

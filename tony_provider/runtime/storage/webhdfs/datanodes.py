"""Transfers with DataNodes: retries on other DataNodes, and detection of DataNodes that hang.

Clients do not notice that a DataNode process hangs, because the kernel still accepts connections and bytes. Therefore,
if a transfer stalls for a few seconds, this module probes the DataNode on other connections. A DataNode that answers no
probe is avoided for a while.
"""

from __future__ import annotations

import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from typing import Optional, TypeVar
from urllib.parse import quote, urlsplit

import attrs

from tony_provider.runtime.storage import errors
from tony_provider.runtime.storage.base import CHUNK, Body
from tony_provider.runtime.storage.webhdfs.namenodes import ROOT, Call, NameNodes
from tony_provider.runtime.storage.webhdfs.transport import (
    BROKEN,
    TIMEOUTS,
    Deadline,
    NoDataNode,
    NotNow,
    SilenceTimeoutError,
    Transport,
    WebHdfsAnswer,
    WebHdfsConfig,
    check_answer,
    describe_failure,
    read_answer,
    request_target,
    set_timeout,
    watch,
)

log = logging.getLogger(__name__)

_AVOIDED = 300.0  # seconds for which a silent DataNode is avoided if another DataNode is available
_PROBES = 3  # concurrent probes; a single probe may reach the DataNode's thread that the transfer blocks
_PROBE_PATH = f"{ROOT}/?op=GETHOMEDIRECTORY"  # a DataNode rejects this path without calling the NameNode


class DataNodeSilentError(TimeoutError):
    """A DataNode does not answer probes."""


class SilentDataNodes:
    """DataNodes that did not answer probes. Later transfers avoid these DataNodes. Thread-safe."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}  # time at which to stop avoiding a DataNode, by host
        self._pipelines_until = float("-inf")
        self._few_replicas = True  # False after HDFS has rejected a file with one replica
        self.any_reached = False  # whether the host of any DataNode has accepted or refused a connection

    @property
    def hosts(self) -> list[str]:
        """The hosts of the DataNodes to avoid."""
        with self._lock:
            return [host for host, until in self._until.items() if until > self._clock()]

    @property
    def may_block_writes(self) -> bool:
        """Whether to write files with one replica first, because a pipeline of DataNodes may include one that hangs."""
        hosts = self.hosts
        with self._lock:
            return self._few_replicas and (bool(hosts) or self._pipelines_until > self._clock())

    def add(self, host: str) -> None:
        with self._lock:
            self._until[host] = self._clock() + _AVOIDED
        log.warning("DataNode %s does not answer; using other DataNodes for the next %g s", host, _AVOIDED)

    def answers(self, host: str) -> None:
        """Stop avoiding a DataNode that answers."""
        with self._lock:
            self._until.pop(host, None)

    def pipeline_hung(self) -> None:
        """Record that a write hangs in its pipeline, so that files are written with one replica for a while."""
        log.warning("a write to HDFS makes no progress; for %g s, files are first written with one replica", _AVOIDED)
        with self._lock:
            self._pipelines_until = self._clock() + _AVOIDED

    def refuse_few_replicas(self) -> None:
        """Do not request one replica again, because HDFS has rejected it (``dfs.namenode.replication.min``)."""
        with self._lock:
            self._few_replicas = False

    def watch(self, connection: HTTPConnection, url: str, patience: float) -> None:
        """Make reads and writes of an open connection fail if the DataNode hangs.

        They fail with DataNodeSilentError if the DataNode does not answer probes. After ``patience`` seconds without a
        byte, they fail with SilenceTimeoutError, even if the DataNode answers probes.
        """
        watch(connection, patience, self._silence, lambda: self._check(url))

    @property
    def _silence(self) -> float:
        return self._transport.config.silence_timeout

    def _check(self, url: str) -> None:
        """Raise DataNodeSilentError if the DataNode of a URL answers none of several probes."""
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
            log.debug("the probe of %s failed: %s", parts.netloc, error)
            return False
        return True


T = TypeVar("T")

_TRIES = 4  # minimum attempts without progress before a transfer fails, even if the deadline has passed
_FIRST_CONTACT = 10.0  # seconds after which a transfer fails if no DataNode of the cluster was ever reached
_HANG_UP_TIMEOUT = 5.0  # seconds; see _hang_up
_PAUSE = 1.0  # maximum seconds before another attempt on the same DataNodes
_SMALL = 1 << 20  # bytes; for files up to this size, the first attempt waits only for ``silence_timeout``
_PATIENCE = 8  # the first attempt waits 1/8 of ``stream_timeout`` for a byte, each later attempt twice as long


class DataNodes:
    """Client for transfers with DataNodes. If a DataNode fails, the client uses another DataNode."""

    def __init__(self, transport: Transport, namenodes: NameNodes) -> None:
        self._transport = transport
        self._config = transport.config
        self._namenodes = namenodes
        self.silent = SilentDataNodes(transport)

    def send(self, create: Callable[[], Call], body: Body) -> None:
        """Create a file by the CREATE call that ``create`` returns, and send the body to a DataNode.

        If the DataNode is lost or hangs, all bytes are sent to another DataNode. Each attempt calls ``create`` for a
        new path, because the previous attempt may still be running. If the source can be read only once, there is only
        one attempt. If it fails, StorageUnreachable is raised.
        """
        failures = self._failures()
        while True:
            call = create()
            location = self._location(self._answer(call, failures), call)
            try:
                self._send_to(location, call, body, failures.patience(body.size))
            except (NotNow, *BROKEN) as error:
                failures.add(call, location, error)
                if not body.available:
                    raise _failed(call, error, urlsplit(location).netloc) from error
            except errors.StorageError as error:
                if "replication" not in call.params or not body.available:
                    raise
                log.warning("HDFS rejected a file with one replica; using the default replication: %s", error)
                self.silent.refuse_few_replicas()
            else:
                return failures.over(location)

    def open(self, call: Call) -> tuple[HTTPConnection, HTTPResponse]:
        """Start an OPEN call, which reads a file. The caller closes the connection."""
        return self._get(call, lambda connection, response: (connection, response))

    def ask(self, call: Call) -> WebHdfsAnswer:
        """Run any other GET call, and return its complete answer."""
        return self._get(call, self._read)

    def _get(self, call: Call, use: Callable[[HTTPConnection, HTTPResponse], T]) -> T:
        """Run a GET call. HttpFS answers itself, and NameNodes redirect to DataNodes."""
        failures = self._failures()
        call = attrs.evolve(call, leaves_content=True)
        while True:
            answer = self._answer(call, failures)
            location = self._config.addresses[0] if answer.unread else self._location(answer, call)
            try:
                result = use(*(answer.unread or self._open_at(location, call, failures.patience())))
            except (NotNow, *BROKEN) as error:
                failures.add(call, location, error)
            else:
                failures.over(location)
                return result

    def _failures(self) -> _Failures:
        return _Failures(self._namenodes, self._config, self.silent)

    def _read(self, connection: HTTPConnection, response: HTTPResponse) -> WebHdfsAnswer:
        with closing(connection):
            return read_answer(response, Deadline(self._config.stream_timeout))

    def _answer(self, call: Call, failures: _Failures) -> WebHdfsAnswer:
        """Return the server's answer, usually a redirect to a DataNode. Prefer DataNodes that have not failed."""
        while True:
            asked = attrs.evolve(call, params={**call.params, **failures.excluded})
            try:
                return self._namenodes.ask(asked)
            except NoDataNode as error:
                failures.none(error)

    def _location(self, answer: WebHdfsAnswer, call: Call) -> str:
        """Return the URL to which an answer redirects: of a DataNode, or of HttpFS or a gateway itself."""
        location = answer.location
        if location is None or not _is_url(location):
            raise errors.StorageError(
                str(call.uri), call.what, "the server names no DataNode", "check that it is a WebHDFS server"
            )
        if self._transport.lacks_encryption(location):  # the URL may contain a token
            raise errors.StorageError(
                str(call.uri),
                call.what,
                f"only https is configured, but the NameNode redirects to http://{urlsplit(location).netloc}",
                "enable https on the DataNodes (dfs.http.policy), or use the NameNodes' http addresses",
            )
        return _as_asked(location, call.uri.path)

    def _send_to(self, location: str, call: Call, body: Body, patience: float) -> None:
        with closing(self._connect(location)) as connection:
            self.silent.watch(connection, location, patience)
            login = self._namenodes.login(location)
            try:
                broken = _send_body(connection, location, login.headers if login else {}, call, body)
            except BaseException:
                _hang_up(connection)
                raise
            if isinstance(broken, TIMEOUTS):
                raise broken
            try:
                answer = read_answer(connection.getresponse(), Deadline(self._config.stream_timeout))
            except BROKEN as error:
                raise broken or error from error
            check_answer(answer, str(call.uri), call.what)  # the server may refuse while bytes are still being sent
            if broken is not None:
                raise broken
            if answer.code != 201:
                raise errors.StorageError(str(call.uri), call.what, f"the DataNode answered {answer.code}, not 201")

    def _connect(self, location: str) -> HTTPConnection:
        try:
            connection = self._transport.connect(location, Deadline(self._config.connect_timeout))
        except (ConnectionRefusedError, ssl.SSLError):
            self.silent.any_reached = True
            raise
        self.silent.any_reached = True
        return connection

    def _open_at(self, location: str, call: Call, patience: float) -> tuple[HTTPConnection, HTTPResponse]:
        connection = self._connect(location)
        try:
            self.silent.watch(connection, location, patience)
            login = self._namenodes.login(location)
            headers = {"Connection": "close", **(login.headers if login else {})}
            connection.request("GET", request_target(location), headers=headers)
            response = connection.getresponse()
            self._check_opened(response, call)
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _check_opened(self, response: HTTPResponse, call: Call) -> None:
        if response.status != 200:
            check_answer(read_answer(response, Deadline(self._config.response_timeout)), str(call.uri), call.what)
            raise errors.StorageError(str(call.uri), call.what, f"the DataNode answered {response.status}, not 200")


class RemoteFile(io.RawIOBase):
    """Stream of a file's bytes that continues at the same position if a DataNode fails."""

    def __init__(self, datanodes: DataNodes, call: Call, offset: int, length: Optional[int]) -> None:
        self._datanodes = datanodes
        self._call = call
        self._position = offset
        self._end = None if length is None else offset + length
        self._failures = 0
        self._connection, self._response = self._open()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            try:
                return self._read_some(buffer)
            except BROKEN as error:
                self._failures += 1
                self._connection.close()
                if self._failures >= _TRIES:
                    raise _failed(self._call, error) from error
                self._connection, self._response = self._open()

    def _read_some(self, buffer: memoryview) -> int:
        if got := self._response.readinto(buffer):
            self._failures = 0
            self._position += got
        elif self._response.length:  # remaining bytes, according to the header
            raise ConnectionResetError(f"the DataNode closed the connection {self._response.length} bytes too early")
        return got

    def _open(self) -> tuple[HTTPConnection, HTTPResponse]:
        params = {"offset": str(self._position)}
        if self._end is not None:
            params["length"] = str(self._end - self._position)
        return self._datanodes.open(Call("GET", "OPEN", self._call.uri, self._call.what, params))

    def close(self) -> None:
        if not self.closed and hasattr(self, "_connection"):
            self._response.close()
            self._connection.close()
        super().close()


class _Failures:
    """Failures of one transfer. The transfer is given up ``config.timeout`` seconds after its first failure."""

    def __init__(self, namenodes: NameNodes, config: WebHdfsConfig, silent: SilentDataNodes) -> None:
        self._namenodes = namenodes
        self._config = config
        self._silent = silent
        self._avoids = True  # whether to avoid DataNodes that were silent in other transfers
        self._first_contact = Deadline(_FIRST_CONTACT)
        self._end: Optional[Deadline] = None
        self._broken = 0
        self._waited = 0  # number of attempts that timed out although the DataNode answered probes
        self._last: Optional[errors.StorageUnreachable] = None
        self._hosts: list[str] = []  # hosts of the DataNodes that have failed in this transfer

    @property
    def excluded(self) -> dict[str, str]:
        """Query parameters that make the NameNode exclude the DataNodes to avoid."""
        hosts = dict.fromkeys([*self._hosts, *(self._silent.hosts if self._avoids else [])])
        return {"excludedatanodes": ",".join(hosts)} if hosts else {}

    def patience(self, size: Optional[int] = None) -> float:
        """Return the ``patience`` of the next attempt, in seconds (see ``SilentDataNodes.watch``).

        ``size``: number of bytes to send, if known. The wait for a small file is shorter, because a repetition costs
        little.
        """
        longest, shortest = self._config.stream_timeout, self._config.silence_timeout
        if size is not None and size <= _SMALL:
            return min(longest, shortest * (1 << self._waited))
        return min(longest, max(shortest, longest / max(1, _PATIENCE >> self._waited)))

    def over(self, location: str) -> None:
        """Record that the transfer succeeded, so its DataNode need not be avoided."""
        if self._silent.hosts:
            self._silent.answers(_host(location))

    def add(self, call: Call, location: str, error: BaseException) -> None:
        """Record a failure, and pause before the next attempt if necessary. Raise StorageUnreachable to give up."""
        self._last = _failed(call, error, urlsplit(location).netloc)
        over = self._deadline.over
        if isinstance(error, NotNow):
            if over or not self._pause():
                raise self._last from error
            return
        self._broken += 1
        # If a DataNode answers probes but transfers nothing, the next DataNode in the write pipeline may hang.
        waits = isinstance(error, SilenceTimeoutError)
        self._waited += waits
        host = _host(location)
        if isinstance(error, TIMEOUTS) and not waits:
            self._silent.add(host)
        if self._none_reachable or (over and self._broken >= _TRIES):
            raise self._last from error
        if waits and call.method == "PUT":
            self._silent.pipeline_hung()
        elif host not in self._hosts:
            self._hosts.append(host)
        elif not self._pause():  # the NameNode returned an excluded DataNode: it has no other, or uses another address
            raise self._last from error

    def none(self, error: NoDataNode) -> None:
        """Clear the exclusions, because no DataNode is left. After the deadline, raise the last error."""
        if self._avoids and self._silent.hosts:
            self._avoids = False
            return
        self._hosts.clear()
        if self._none_reachable or self._deadline.over or not self._pause():
            raise (self._last or error) from error

    @property
    def _none_reachable(self) -> bool:
        """Whether this machine probably cannot reach the cluster's DataNodes at all, so that waiting is useless."""
        return self._broken > 1 and not self._silent.any_reached and self._first_contact.over

    @property
    def _deadline(self) -> Deadline:
        """Deadline, counted from the first failure, because a transfer without failures may take any time."""
        if self._end is None:
            self._end = Deadline(self._config.timeout)
        return self._end

    def _pause(self) -> bool:
        return self._namenodes.wait(self._deadline.left(_PAUSE))


def _failed(call: Call, error: BaseException, server: str = "") -> errors.StorageUnreachable:
    if isinstance(error, NotNow):
        return errors.StorageUnreachable(str(call.uri), call.what, str(error), "retry when HDFS is ready")
    kind = errors.StorageTimeout if isinstance(error, TIMEOUTS) else errors.StorageUnreachable
    return kind(
        str(call.uri),
        call.what,
        f"DataNode {server}: {describe_failure(error)}" if server else describe_failure(error),
        "the NameNode redirects to DataNodes: this machine must resolve their names and reach their HTTP ports",
    )


def _is_url(location: str) -> bool:
    try:
        parts = urlsplit(location)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _as_asked(location: str, path: str) -> str:
    """Replace the path in a redirect's URL by the requested path, quoted.

    The NameNode changes non-ASCII letters in the path to their composed Unicode form, which names another file. The
    NameNode also corrupts letters that it has already quoted.
    """
    parts = urlsplit(location)
    prefix, found, _ = parts.path.partition(ROOT)
    if path.isascii() or not found:
        return location
    return parts._replace(path=f"{prefix}{found}{quote(path)}").geturl()


def _host(location: str) -> str:
    """Return the IP address of a DataNode, because ``excludedatanodes`` requires addresses."""
    host = urlsplit(location).hostname or ""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _send_body(
    connection: HTTPConnection, location: str, headers: Mapping[str, str], call: Call, body: Body
) -> Optional[Exception]:
    """Send the body. Return a connection error instead of raising it, because the server's answer may explain it."""
    try:
        connection.putrequest("PUT", request_target(location), skip_accept_encoding=True)
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Connection", "close")
        for name, value in headers.items():
            connection.putheader(name, value)
        if body.size is None:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(body.size))
        connection.endheaders()
    except BROKEN as error:
        return error
    sent = 0
    for chunk in body.chunks():  # not in a try block, so that errors of the source are raised
        sent += len(chunk)
        if (broken := _send_chunk(connection, chunk, framed=body.size is None)) is not None:
            return broken
    if body.size is None:
        return _send_chunk(connection, b"", framed=True)
    if sent != body.size:
        raise errors.StorageError(str(call.uri), call.what, "the source became shorter during the upload")
    return None


def _hang_up(connection: HTTPConnection) -> None:
    """Abort a transfer, and wait until the DataNode has noticed it.

    Without this wait, the DataNode might create the file after the caller has removed it.
    """
    try:
        set_timeout(connection, _HANG_UP_TIMEOUT)
        connection.sock.shutdown(socket.SHUT_WR)
        while connection.sock.recv(CHUNK):
            pass
    except OSError as error:
        log.debug("a DataNode did not acknowledge an aborted transfer: %s", error)


def _send_chunk(connection: HTTPConnection, chunk: bytes, *, framed: bool) -> Optional[Exception]:
    try:
        connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if framed else chunk)
    except BROKEN as error:
        return error
    return None

"""HTTP exchanges with deadlines. ``http.client`` follows no redirects and uses no proxies: just what is wanted."""

from __future__ import annotations

import socket
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Optional
from urllib.parse import quote, urlsplit

from tony_provider.runtime.storage.base import CHUNK
from tony_provider.runtime.storage.webhdfs.answers import Answer
from tony_provider.runtime.storage.webhdfs.config import SpnegoExchange, WebHdfsConfig

BROKEN = (OSError, HTTPException)
"""What ``http.client`` raises when a connection does not do; ``TimeoutError`` and bad certificates are OSErrors."""

TIMEOUTS = (TimeoutError, socket.timeout)  # two classes before Python 3.10
_MAX_ANSWER = 1 << 30  # bytes; a listing of a million files has some 300 MB


class Deadline:
    """A time by which something has to be over, so many seconds after it was made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, at_most: float = float("inf")) -> float:
        """The seconds that are left; never less than a millisecond, since 0 would mean "do not block" to a socket."""
        return max(0.001, min(at_most, self._end - time.monotonic()))

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end


class Transport:
    """Opens connections to the servers, and sends single requests over them."""

    def __init__(self, config: WebHdfsConfig) -> None:
        self.config = config
        schemes = {urlsplit(address).scheme for address in config.addresses}
        self._tls = _tls_context(config) if "https" in schemes else None
        self._plain = "http" in schemes

    def is_readable(self, url: str) -> bool:
        """Whether what goes to this server could be read along, though https was asked for."""
        return urlsplit(url).scheme != "https" and not self._plain

    def connect(self, url: str, deadline: Deadline) -> HTTPConnection:
        """An open connection to the server of ``url``. Raises BROKEN."""
        parts = urlsplit(url)
        timeout = deadline.left(self.config.connect_timeout)
        connection: HTTPConnection
        if parts.scheme == "https":
            connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=self._tls)
        else:
            connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        connection.connect()
        return connection

    def exchange(
        self,
        connection: HTTPConnection,
        method: str,
        url: str,
        spnego: Optional[SpnegoExchange],
        deadline: Deadline,
    ) -> Answer:
        """Send a request without a body; returns the whole answer. Raises BROKEN.

        With ``spnego`` it says who we are, and the server has to prove itself: raises as its ``check``.
        """
        set_timeout(connection, deadline.left(self.config.response_timeout))
        who = {} if spnego is None else {"Authorization": spnego.authorization}
        connection.request(method, target(url), headers={**who, "Connection": "close"})
        answer = read_answer(connection.getresponse(), deadline)
        if spnego is not None and (answer.needs_proof or answer.authenticate):
            spnego.check(answer.authenticate)
        return answer


def read_answer(response: HTTPResponse, deadline: Deadline) -> Answer:
    """Read a whole answer by the deadline, up to a size. Raises BROKEN."""
    parts = []
    size = 0
    while chunk := response.read(CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if deadline.over:
            raise TimeoutError(f"its answer took more than {deadline.seconds:g} s")
        if size > _MAX_ANSWER:
            raise HTTPException(f"its answer is longer than {_MAX_ANSWER} bytes")
    if response.length:  # what is missing; read() with a size does not complain
        raise HTTPException("it closed the connection within its answer")
    authenticate = response.getheader("WWW-Authenticate")
    date = response.headers.get("Date")  # the first one: a filter of Hadoop's adds another
    return Answer(response.status, response.getheader("Location"), b"".join(parts), authenticate, date)


def set_timeout(connection: HTTPConnection, seconds: float) -> None:
    """Let the next reads and writes of a connection take so many seconds each."""
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def target(url: str) -> str:
    """The path and query of a URL as they go into the request line.

    A Location may hold raw UTF-8, which http.client reads as Latin-1; everything else in it is left as it is.
    """
    parts = urlsplit(url)
    text = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return quote(text.encode("latin-1"), safe="".join(map(chr, range(0x21, 0x7F))))


def describe(error: BaseException, seconds: Optional[float] = None) -> str:
    """What is wrong with a connection, in the user's words."""
    if isinstance(error, TIMEOUTS):
        return "no answer in time" if seconds is None else f"no answer within {seconds:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _tls_context(config: WebHdfsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca_file)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

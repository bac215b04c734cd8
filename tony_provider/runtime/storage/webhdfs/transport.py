"""HTTP transport of WebHDFS: settings, SPNEGO, deadlines, and mapping of Hadoop's errors to StorageErrors.

The settings (WebHdfsConfig) contain no secret, so they may be transmitted in plain text.
"""

from __future__ import annotations

import io
import json
import re
import select
import socket
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Callable, Optional, Protocol, cast
from urllib.parse import quote, urlsplit

import attrs

from tony_provider.runtime.common.network import page_title, web_address
from tony_provider.runtime.hadoop.gss import explained, reason
from tony_provider.runtime.storage import errors
from tony_provider.runtime.storage.base import CHUNK
from tony_provider.runtime.storage.errors import StorageAuthError


class HttpLogin(Protocol):
    """Authentication of one request, by SPNEGO or at a gateway."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers that authenticate this client."""

    def check(self, answer: Optional[str]) -> None:
        """Check the answer's ``WWW-Authenticate`` header, by which a server with Kerberos proves its identity.

        Raises an error if the header is missing, or if it is not from the server for which the ticket was issued.
        """


Negotiate = Callable[[str], HttpLogin]
"""Authenticates a request to the server of a host name (with Kerberos: service ``HTTP@host``).

Called for each request, from whatever threads use the storage. DataNodes get no login."""


def _normalized(addresses: list[str]) -> list[str]:
    """Return the addresses with lower-case schemes and without trailing slashes. Raises ValueError."""
    if not addresses:
        raise ValueError("WebHDFS needs the address of at least one NameNode")
    valid = (web_address(address, "http://host:9870 or https://host:9871") for address in addresses)
    return [parts.geturl().rstrip("/") for parts in valid]


@attrs.frozen
class WebHdfsConfig:
    """Settings for a cluster's WebHDFS: addresses, user and timeouts. Raises ValueError for invalid addresses.

    Environment variables for HTTP proxies, such as ``https_proxy``, have no effect.
    """

    addresses: list[str] = attrs.field(converter=_normalized)
    """``http(s)://host:port`` of every NameNode of one cluster; a gateway's path may follow."""
    user: Optional[str] = None
    """User name for a cluster without Kerberos (``user.name``). Not sent with a token or with Kerberos."""
    proxy_user: Optional[str] = None
    """User to act for (``doas``), if the cluster allows it to ``user`` or the principal. Not sent with a token."""
    ca_file: Optional[str] = None
    """PEM file with the certificate authorities for https servers. Default: the system's certificate authorities."""
    verify: bool = True
    """Whether to check the certificates of https servers."""
    authorities: list[str] = attrs.field(factory=list)
    """Accepted authorities in ``hdfs://`` URIs; empty: all. URIs without an authority are always accepted."""
    connect_timeout: float = 10.0
    """Seconds to open one connection."""
    response_timeout: float = 20.0
    """Seconds to wait for the answer of one NameNode before the request goes to the next one."""
    stream_timeout: float = 120.0
    """Maximum seconds without a byte in a transfer, if the DataNode still answers probes.

    The first attempts use a shorter limit."""
    silence_timeout: float = 4.0
    """Seconds without a byte after which the client probes a DataNode, or logs a warning for a NameNode.

    Each probe takes at most half of this time."""
    timeout: float = 60.0
    """Seconds for one request to the NameNodes, including all retries and failovers."""


def spnego_error(host: str, problem: str, advice: Optional[str] = None) -> StorageAuthError:
    """Return the error for a failed SPNEGO exchange with a host. ``gss.Tickets`` gets this function as ``error``."""
    return StorageAuthError(f"HTTP@{host}", "authenticate with", problem, advice)


class NoDataNode(errors.StorageUnreachable):
    """The NameNode knows no DataNode for the file, for example because the DataNodes have not registered yet."""


_BY_EXCEPTION: dict[str, type[errors.StorageError]] = {
    "FileNotFoundException": errors.StorageNotFound,
    "FileAlreadyExistsException": errors.StorageExists,
    "AlreadyBeingCreatedException": errors.StorageExists,
    "PathIsNotEmptyDirectoryException": errors.StorageNotEmpty,
    "ParentNotDirectoryException": errors.StorageNotADirectory,
    "PathIsNotDirectoryException": errors.StorageNotADirectory,
    "AccessControlException": errors.StoragePermissionDenied,
    "AuthorizationException": errors.StoragePermissionDenied,
    "InvalidToken": errors.StorageAuthError,
    "SecurityException": errors.StorageAuthError,
    "AuthenticationException": errors.StorageAuthError,
    "BlockMissingException": errors.StorageUnreachable,
    "DSQuotaExceededException": errors.StorageNoSpace,
    "NSQuotaExceededException": errors.StorageNoSpace,
    "QuotaExceededException": errors.StorageNoSpace,
    "QuotaByStorageTypeExceededException": errors.StorageNoSpace,
    "InvalidPathException": errors.StorageInvalidPath,
    "PathComponentTooLongException": errors.StorageInvalidPath,
    "UnsupportedOperationException": errors.StorageUnsupported,
}
# Errors whose Java class is generic, such as IOException. Only the message shows the kind of error.
_BY_WORDS: list[tuple[str, type[errors.StorageError]]] = [
    ("Path is not a file", errors.StorageIsADirectory),
    ("Invalid path name", errors.StorageInvalidPath),
    ("Invalid file name", errors.StorageInvalidPath),
    ("could only be written to 0 of", errors.StorageNoSpace),
    ("could only be replicated to 0 nodes", errors.StorageNoSpace),
    ("not allowed to do 'DECRYPT_EEK'", errors.StorageZoneClosed),  # denied by the access lists of the key server
    ("not authorized to perform [DECRYPT_EEK]", errors.StorageZoneClosed),  # denied by the access list of a key
    ("Failed to find datanode", NoDataNode),
    ("No active nodes contain this block", NoDataNode),
    ("Support for ACLs has been disabled", errors.StorageUnsupported),  # dfs.namenode.acls.enabled
    ('parameter "op"', errors.StorageUnsupported),  # an operation that the server does not know
    ("File does not exist: ", errors.StorageNotFound),  # a RemoteException of HttpFS
    ("is not allowed to impersonate", errors.StoragePermissionDenied),  # a SecurityException in Hadoop 2.10
    # HDFS reports AccessControlException with this text to all users except the superuser.
    ("(is not a directory)", errors.StorageNotADirectory),
    ("rename destination directory is not empty", errors.StorageNotEmpty),
    ("must both be directories", errors.StorageExists),
    ("is a directory or file under source", errors.StorageInvalidPath),
    ("no eligible destination in the same namespace", errors.StorageOtherMount),
]
# Errors of a NameNode that is not active or not ready. Retry, possibly with another NameNode.
_NOT_NOW = {"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"}
_BUSY_CODES = {502, 503, 504}
# Messages of Hadoop's NetUtils.wrapException, from a DataNode whose call to the NameNode failed.
_NAMENODE_AWAY = re.compile(
    "failed on (connection|socket|socket timeout) exception|Failed on local exception|End of File Exception between"
)
_NOT_TEMPORARY = re.compile("AccessControlException|Sasl")


class NotNow(Exception):  # noqa: N818 (not an error if another server answers)
    """The server is temporarily unable to answer. Another server or a retry may succeed."""


@attrs.frozen
class WebHdfsAnswer:
    """HTTP answer of a NameNode or DataNode."""

    code: int
    location: Optional[str]  # URL of a DataNode if the answer is a redirect
    body: bytes
    authenticate: Optional[str] = None  # ``WWW-Authenticate`` header: the server's proof of identity with Kerberos
    date: Optional[str] = None  # ``Date`` header: the time by the server's clock
    unread: Optional[tuple[HTTPConnection, HTTPResponse]] = None  # in place of ``body``, see ``Transport.exchange``

    @property
    def needs_proof(self) -> bool:
        """Whether this answer must contain a proof of the server's identity.

        Servers send rejections (401, 403) before the proof. Server errors (5xx) may be from a gateway or web server.
        """
        return self.code not in (401, 403) and self.code < 500

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ValueError for any other body."""
        try:
            value = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 (as json.loads does)
        return value


HDFS_REPORTS = "HDFS reports"  # start of the problem in errors that HDFS itself has sent


def check_answer(answer: WebHdfsAnswer, uri: str, operation: str) -> None:
    """Raise an error unless an answer is a success (200, 201) or a redirect (307).

    Raises NotNow for temporary problems. For other problems, raises the StorageError for the answer's error.
    """
    if answer.code in (200, 201, 307):
        return
    exception, message = _remote_exception(answer)
    if _is_temporary(exception, message, answer.code):
        raise NotNow(f"{exception or answer.code}: {_first_line(message)}")
    raise _kind(exception, message, answer.code)(uri, operation, _problem(exception, message, answer))


def _is_temporary(exception: str, message: str, code: int) -> bool:
    if exception in _NOT_NOW or "StandbyException" in message or (not exception and code in _BUSY_CODES):
        return True
    return bool(_NAMENODE_AWAY.search(message)) and not _NOT_TEMPORARY.search(message)


def _kind(exception: str, message: str, code: int) -> type[errors.StorageError]:
    for words, kind in _BY_WORDS:
        if words in message:
            return kind
    if exception in _BY_EXCEPTION:
        return _BY_EXCEPTION[exception]
    # Hadoop's authentication filter answers with an HTML page, which contains no exception. Gateways redirect to pages.
    return errors.StorageAuthError if not exception and code in (302, 303, 401, 403) else errors.StorageError


def _problem(exception: str, message: str, answer: WebHdfsAnswer) -> str:
    code = answer.code
    if exception:
        return f"{HDFS_REPORTS} {exception}: {explained(_first_line(message))}"
    if answer.location:
        place = answer.location.partition("?")[0]  # the rest may contain a token
        return f"the server redirects to {place}, perhaps to log in; check `gateway` in the tony connection"
    if code == 401 and (answer.authenticate or "").lower().startswith(("basic", "bearer")):
        return f"the gateway does not accept the user and the password or JWT of the tony connection ({code})"
    if code in (401, 403) and (known := reason(message)):
        return f"the server does not accept the Kerberos ticket: {known.meaning} ({code}: {message}); {known.remedy}"
    if code in (401, 403):
        return f"the server requires Kerberos or a delegation token, or rejects the one sent ({code}: {message})"
    return f"the server is not WebHDFS: check that its address is a NameNode's. It answered {code}: {message}"


def _remote_exception(answer: WebHdfsAnswer) -> tuple[str, str]:
    """Return the short name and the message of the Java exception in an answer.

    If the answer is not from WebHDFS, the name is empty, and the message is the title of the page.
    """
    try:
        remote = answer.json["RemoteException"]
        # Only javaClassName has the full name of a nested class, such as SecretManager$InvalidToken.
        name = str(remote.get("javaClassName") or remote["exception"])
        return name.rsplit(".", 1)[-1].rsplit("$", 1)[-1], str(remote.get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", page_title(answer.body)[:200]


def _first_line(message: str) -> str:
    """Return the message without the stack trace that Hadoop appends."""
    return message.strip().split("\n", 1)[0]


BROKEN = (OSError, HTTPException)
"""Errors of ``http.client`` for a broken connection; ``TimeoutError`` and bad certificates are OSErrors."""

TIMEOUTS = (TimeoutError, socket.timeout)  # different classes before Python 3.10
_MAX_ANSWER = 1 << 30  # bytes; a listing of a million files has some 300 MB


class Deadline:
    """Deadline that passes a number of seconds after the object was created."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, at_most: float = float("inf")) -> float:
        """Return the remaining seconds. The minimum is 0.001, because a socket with the timeout 0 does not block."""
        return max(0.001, min(at_most, self._end - time.monotonic()))

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end


_LONGEST_IDLE = 5.0  # seconds; Hadoop's servers close a connection after 10 s or more without a request
_MOST_IDLE = 4


class IdleConnections:
    """Open connections to one server, between two requests. Thread-safe."""

    def __init__(self) -> None:
        self._room = _MOST_IDLE
        self._idle: list[tuple[HTTPConnection, float]] = []

    def take(self) -> Optional[HTTPConnection]:
        """Return a connection that the server has not closed, or None."""
        while last := self._pop():
            connection, since = last
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if time.monotonic() - since < _LONGEST_IDLE and not poll.poll(0):
                return connection
            connection.close()
        return None

    def keep(self, connection: HTTPConnection) -> None:
        """Keep a connection whose last answer was read completely. Close it if there are too many."""
        if connection.sock is None or len(self._idle) >= self._room:
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))

    def close(self) -> None:
        """Close all connections, and keep none from now on."""
        self._room = 0
        while last := self._pop():
            last[0].close()

    def _pop(self) -> Optional[tuple[HTTPConnection, float]]:
        try:
            return self._idle.pop()
        except IndexError:  # also if another thread has taken the last connection
            return None


def server_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL, by which two URLs of one server are equal."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class Transport:
    """Opens connections to WebHDFS servers, and sends requests without a body."""

    def __init__(self, config: WebHdfsConfig) -> None:
        self.config = config
        schemes = {urlsplit(address).scheme for address in config.addresses}
        self._tls = _tls_context(config) if "https" in schemes else None
        self._plain = "http" in schemes

    def lacks_encryption(self, url: str) -> bool:
        """Return whether others could read a transfer: the URL is http although all configured addresses are https."""
        return urlsplit(url).scheme != "https" and not self._plain

    def connect(self, url: str, deadline: Deadline) -> HTTPConnection:
        """Return an open connection to the server of ``url``. Raises the errors in BROKEN."""
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
        login: Optional[HttpLogin],
        deadline: Deadline,
        *,
        leaves_content: bool = False,
    ) -> WebHdfsAnswer:
        """Send a request without a body, and return the complete answer.

        ``login`` authenticates this client and the server. With ``leaves_content``, the content of a success is left
        unread, because it may be a whole file. Raises the errors in BROKEN and of ``login.check``.
        """
        set_timeout(connection, deadline.left(self.config.response_timeout))
        connection.request(method, request_target(url), headers=login.headers if login else {})
        sock: Any = connection.sock
        response = connection.getresponse()
        if leaves_content and response.status == HTTPStatus.OK:
            if isinstance(sock, _WatchedSocket):
                sock.patience = self.config.stream_timeout
            answer = attrs.evolve(_answer_of(response, b""), unread=(connection, response))
        else:
            answer = read_answer(response, deadline)
        if login and (answer.needs_proof or answer.authenticate):
            login.check(answer.authenticate)
        return answer


def read_answer(response: HTTPResponse, deadline: Deadline) -> WebHdfsAnswer:
    """Read a complete answer of limited size by the deadline. Raises the errors in BROKEN."""
    parts = []
    size = 0
    while chunk := response.read(CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if deadline.over:
            raise TimeoutError(f"its answer took more than {deadline.seconds:g} s")
        if size > _MAX_ANSWER:
            raise HTTPException(f"its answer is longer than {_MAX_ANSWER} bytes")
    if response.length:  # bytes are missing; read() with a size does not report this
        raise HTTPException("it closed the connection before the end of its answer")
    return _answer_of(response, b"".join(parts))


def _answer_of(response: HTTPResponse, body: bytes) -> WebHdfsAnswer:
    authenticate = response.getheader("WWW-Authenticate")
    date = response.headers.get("Date")  # the first header; a filter of Hadoop adds a second one
    return WebHdfsAnswer(response.status, response.getheader("Location"), body, authenticate, date)


def set_timeout(connection: HTTPConnection, seconds: float) -> None:
    """Set the timeout in seconds for each later read and write of a connection."""
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def request_target(url: str) -> str:
    """Return the path and query of a URL for the request line.

    Encodes only non-ASCII characters. A Location header may contain raw UTF-8, which http.client decodes as Latin-1.
    """
    parts = urlsplit(url)
    text = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return quote(text.encode("latin-1"), safe="".join(map(chr, range(0x21, 0x7F))))


def describe_failure(error: BaseException, seconds: Optional[float] = None) -> str:
    """Describe a connection error for the user. ``seconds``: the timeout to mention in the text."""
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


class SilenceTimeoutError(TimeoutError):
    """A connection carried no bytes for too long. The message contains the number of seconds."""


def watch(connection: HTTPConnection, patience: float, silence: float, on_silence: Callable[[], object]) -> None:
    """Limit the time for which reads and writes of an open connection wait.

    Whenever ``silence`` seconds pass without a byte, ``on_silence`` is called. An exception of ``on_silence`` ends the
    read or write. After ``patience`` seconds without a byte, SilenceTimeoutError is raised.
    """
    set_timeout(connection, patience)
    sock: Any = connection.sock
    plain = sock.plain if isinstance(sock, _WatchedSocket) else sock
    connection.sock = cast(Any, _WatchedSocket(plain, patience, silence, on_silence))


class _WatchedSocket:
    """Socket wrapper for ``watch``, with the methods that ``http.client`` needs."""

    def __init__(self, sock: socket.socket, patience: float, silence: float, on_silence: Callable[[], object]) -> None:
        self.plain = sock
        self.patience = patience  # seconds without a byte
        self._silence = silence
        self._on_silence = on_silence

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self.wait(select.POLLOUT)
            left = left[self.plain.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_WatchedFile(self, self.plain.makefile("rb", buffering=0)))

    def wait(self, event: int) -> None:
        """Wait until bytes can be read or written. Raises SilenceTimeoutError, and errors of ``on_silence``."""
        if event == select.POLLIN and isinstance(self.plain, ssl.SSLSocket) and self.plain.pending():
            return
        poll = select.poll()
        poll.register(self.plain, event)
        deadline = Deadline(self.patience)
        while not poll.poll(1000 * deadline.left(self._silence)):
            self._on_silence()
            if deadline.over:
                raise SilenceTimeoutError(f"no bytes within {self.patience:g} s")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


class _WatchedFile(io.RawIOBase):
    """Stream of the bytes that a watched socket receives."""

    def __init__(self, watched: _WatchedSocket, file: io.RawIOBase) -> None:
        self._watched = watched
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._watched.wait(select.POLLIN)
        return cast(Optional[int], self._file.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

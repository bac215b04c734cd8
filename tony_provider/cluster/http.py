"""Answers over HTTP, read up to a size and by a deadline: what answers may be a job's own, or something else."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import attrs
import requests
from requests.auth import AuthBase

from tony_provider.cluster import settings
from tony_provider.runtime.common.bounds import YARN_ANSWER_LIMIT, BoundedJsonError, read_json


class AnswerTooLong(requests.RequestException):
    """An answer has more bytes than any of its kind, or takes longer than it may."""


def bounded_request(
    session: requests.Session, method: str, url: str, most_bytes: int, seconds: float, **more: Any
) -> Any:
    """The whole answer to a request, a ``requests.Response``; ``more`` as ``Session.request`` has it.

    ``seconds``: from now until its last byte. Raises requests.RequestException, AnswerTooLong among them.
    """
    deadline = time.monotonic() + seconds
    response = session.request(method, url, stream=True, **more)
    with response:
        response.raw = _Bounded(response.raw, most_bytes, deadline)
        response.content  # noqa: B018 - reads it
    return response


def json_object(response: requests.Response) -> dict[str, Any] | None:
    """The JSON object that was answered; None for what is none. Text in it may be ``surrogateescape``d bytes."""
    try:
        found = read_json(response.content, surrogates=True)
    except BoundedJsonError:
        return None
    return found if isinstance(found, dict) else None


class _Bounded:
    """urllib3's response as ``requests`` reads one."""

    def __init__(self, raw: Any, most_bytes: int, deadline: float) -> None:
        self._raw = raw
        self._most = most_bytes
        self._deadline = deadline

    def stream(self, amount: int, decode_content: bool = True) -> Iterator[bytes]:
        left = self._most
        # What has come, however little it is: the deadline is looked at after each piece.
        while piece := self._raw.read1(amount, decode_content=decode_content):
            left -= len(piece)
            if left < 0:
                raise AnswerTooLong(f"the answer has more than {self._most} bytes")
            if time.monotonic() > self._deadline:
                raise AnswerTooLong("the answer takes too long")
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


CONNECT_SECONDS = 2.0  # for a connection to open
ANSWER_SECONDS = 3.0  # for a server to answer
_LONGEST_ANSWER = 30.0  # seconds from the request to the last byte
_IPC = "Hadoop IPC port"  # as every RPC port of Hadoop says to those who speak HTTP to it

# What Hadoop's servers answer at, what is in that answer, and who they are.
_NATURES = (
    ("/ws/v1/cluster/info", "clusterInfo", "a ResourceManager's web address"),
    ("/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=nobody", "Path", "a NameNode's web address"),
    ("/ws/v1/node/info", "nodeInfo", "a NodeManager's web address"),
    ("/ws/v1/history/info", "historyInfo", "a JobHistory server's web address"),
)


@attrs.frozen
class Unanswered(Exception):  # noqa: N818
    """Nobody of use answered at an address."""

    detail: str
    advice: str


@attrs.frozen
class RequestOptions:
    """How requests of a diagnosis are sent: certificates, proxies, authentication."""

    verify: bool | str = True
    trust_env: bool = False
    auth: AuthBase | None = None
    identity: dict[str, str] = attrs.field(factory=dict)  # the parameters that say for whom a request is

    def send(self, method: str, url: str, *, authenticated: bool = True) -> requests.Response:
        """Send one request to one address. Redirects are not followed. Raises Unanswered."""
        if unusable := settings.ca_file_problem(self.verify, [url]):
            raise Unanswered(unusable, settings.CA_FILE_ADVICE)
        with requests.Session() as session:
            session.trust_env = self.trust_env
            try:
                return bounded_request(  # type: ignore[no-any-return]
                    session,
                    method,
                    url,
                    YARN_ANSWER_LIMIT,
                    _LONGEST_ANSWER,
                    params=self.identity,
                    auth=self.auth if authenticated else None,
                    verify=self.verify,
                    timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                    allow_redirects=False,
                    headers={"Accept": "application/json"},
                )
            except requests.RequestException as error:
                raise _unanswered(error, urlsplit(url)) from error


def json_of(response: requests.Response) -> dict[str, Any]:
    """The JSON object that was answered; empty for what is none."""
    return json_object(response) or {}


def remote_exception(response: requests.Response) -> str:
    """The name and message of the Hadoop error that was answered; empty when it is none."""
    remote = json_of(response).get("RemoteException")
    if not isinstance(remote, dict):
        return ""
    message = str(remote.get("message", "")).strip().split("\n", 1)[0]
    return f"{remote.get('exception', '')}: {message}"


def asks_for_kerberos(response: requests.Response) -> bool:
    """Whether a server has refused a request for want of Kerberos, or of a ticket that it can make use of."""
    if response.status_code == requests.codes.forbidden:
        return "GSSException" in response.text
    return bool(response.status_code == requests.codes.unauthorized)


def describe_server(base: str, way: RequestOptions, response: requests.Response) -> str:
    """What seems to be at an address that answered as it should not have."""
    if _IPC in response.text:
        return "a Hadoop RPC port, not a web address"
    for path, key, name in _NATURES:
        try:
            answer = json_of(way.send("GET", f"{base}{path}"))
        except Unanswered:
            break
        if key in answer:
            return name
    return f"some other web server (it answered {response.status_code})"


def _unanswered(error: requests.RequestException, address: Any) -> Unanswered:
    host, port = address.hostname, address.port
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unanswered(
                f"its certificate is not trusted here ({cause.verify_message})",
                "set `verify` to the PEM file of its authority",
            )
        if isinstance(cause, ssl.SSLError):
            return Unanswered("it does not speak TLS", "write http:// in place of https://, or name its https port")
        if isinstance(cause, socket.gaierror):
            return Unanswered(f"the name {host!r} has no address here", "check the name, and this host's name server")
        if isinstance(cause, ConnectionRefusedError):
            return Unanswered(f"nothing listens on port {port} of {host}", "check the port, and that the server runs")
        if isinstance(cause, ConnectionResetError):
            return Unanswered("it closes the connection without an answer", "check the port, and http:// or https://")
    if isinstance(error, requests.ConnectTimeout):
        return Unanswered(f"no connection within {CONNECT_SECONDS:g} s", "check the address, and firewalls on the way")
    if isinstance(error, requests.Timeout):
        return Unanswered(
            f"it takes connections, but did not answer within {ANSWER_SECONDS:g} s",
            "check the port; or the server hangs, or is overloaded",
        )
    return Unanswered(f"it cannot be asked ({list(_causes(error))[-1]})", "check the address, and http:// or https://")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """From what requests says down to what happened."""
    found: BaseException | None = error
    while found is not None:
        yield found
        inner = getattr(found, "reason", None)  # of urllib3's errors
        found = inner if isinstance(inner, BaseException) else found.__cause__ or found.__context__

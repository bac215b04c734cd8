"""HTTP requests whose answers are limited in size and time, because a job or another untrusted server may answer.

The module also sends diagnostic requests, and explains why a server did not answer as expected.
"""

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
    """An answer exceeds the size limit, or takes longer than allowed."""


def bounded_request(
    session: requests.Session, method: str, url: str, most_bytes: int, seconds: float, **more: Any
) -> Any:
    """Send a request and return the ``requests.Response`` with its whole content.

    ``seconds`` limits the time until the last byte, ``most_bytes`` the size of the answer. ``more`` are further
    arguments of ``Session.request``. Raises requests.RequestException, including AnswerTooLong.
    """
    deadline = time.monotonic() + seconds
    response = session.request(method, url, stream=True, **more)
    with response:
        response.raw = _Bounded(response.raw, most_bytes, deadline)
        response.content  # noqa: B018 - reads it
    return response


def json_object(response: requests.Response) -> dict[str, Any] | None:
    """Return the JSON object in an answer, or None if it has none. Invalid UTF-8 is decoded by ``surrogateescape``."""
    try:
        found = read_json(response.content, surrogates=True)
    except BoundedJsonError:
        return None
    return found if isinstance(found, dict) else None


class _Bounded:
    """Wraps urllib3's response so that ``requests`` reads it within the limits."""

    def __init__(self, raw: Any, most_bytes: int, deadline: float) -> None:
        self._raw = raw
        self._most = most_bytes
        self._deadline = deadline

    def stream(self, amount: int, decode_content: bool = True) -> Iterator[bytes]:
        left = self._most
        # read1 returns as soon as any bytes arrive, so that the deadline is checked often.
        while piece := self._raw.read1(amount, decode_content=decode_content):
            left -= len(piece)
            if left < 0:
                raise AnswerTooLong(f"the answer has more than {self._most} bytes")
            if time.monotonic() > self._deadline:
                raise AnswerTooLong("the answer takes too long")
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and the port of a web address."""
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


CONNECT_SECONDS = 2.0  # to open a connection
ANSWER_SECONDS = 3.0  # for a server to answer
_LONGEST_ANSWER = 30.0  # seconds from the request to the answer's last byte
_IPC = "Hadoop IPC port"  # text in the answer of a Hadoop RPC port to an HTTP request

ROUTER_KEY = "subCluster"  # in a YARN Router's answer to a request for the cluster's information
YARN_ROUTER = "a YARN Router, not the ResourceManager of a sub-cluster"
# For each kind of Hadoop server: a URL path, a key in the server's answer to it, and a description of the server.
_NATURES = (
    ("/ws/v1/cluster/info", ROUTER_KEY, YARN_ROUTER),
    ("/ws/v1/cluster/info", "clusterInfo", "a ResourceManager's web address"),
    ("/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name=nobody", "Path", "a NameNode's web address"),
    ("/ws/v1/node/info", "nodeInfo", "a NodeManager's web address"),
    ("/ws/v1/history/info", "historyInfo", "a JobHistory server's web address"),
)


@attrs.frozen
class Unanswered(Exception):  # noqa: N818
    """No server at an address gave a usable answer."""

    detail: str
    advice: str


@attrs.frozen
class RequestOptions:
    """Options of diagnostic requests: certificates, proxies, authentication."""

    verify: bool | str = True
    trust_env: bool = False
    auth: AuthBase | None = None  # SPNEGO, or the login at a gateway; None without both
    gateway: bool = False  # whether the servers are behind a gateway
    identity: dict[str, str] = attrs.field(factory=dict)  # request parameters that name the user

    def send(self, method: str, url: str, *, authenticated: bool = True) -> requests.Response:
        """Send one request to one address without following redirects. Raises Unanswered."""
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
    """Return the JSON object in an answer, or an empty dictionary if it has none."""
    return json_object(response) or {}


def asks_for_kerberos(response: requests.Response) -> bool:
    """Return whether a server refused a request because it had no Kerberos authentication or no usable ticket."""
    if response.status_code == requests.codes.forbidden:
        return "GSSException" in response.text
    return bool(response.status_code == requests.codes.unauthorized)


def describe_server(base: str, way: RequestOptions, response: requests.Response) -> str:
    """Describe the kind of server at an address that gave an unexpected answer."""
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
            return Unanswered("it does not use TLS", "use http:// instead of https://, or use its https port")
        if isinstance(cause, socket.gaierror):
            return Unanswered(f"cannot resolve host {host!r}", "check the name, and this host's name server")
        if isinstance(cause, ConnectionRefusedError):
            return Unanswered(f"nothing listens on port {port} of {host}", "check the port, and that the server runs")
        if isinstance(cause, ConnectionResetError):
            return Unanswered("it closes the connection without an answer", "check the port, and http:// or https://")
    if isinstance(error, requests.ConnectTimeout):
        return Unanswered(f"no connection within {CONNECT_SECONDS:g} s", "check the address, and firewalls on the way")
    if isinstance(error, requests.Timeout):
        return Unanswered(
            f"it accepts connections, but did not answer within {ANSWER_SECONDS:g} s",
            "check the port, and whether the server hangs or is overloaded",
        )
    return Unanswered(f"the request failed ({list(_causes(error))[-1]})", "check the address, and http:// or https://")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error of ``requests`` and its causes, the innermost last."""
    found: BaseException | None = error
    while found is not None:
        yield found
        inner = getattr(found, "reason", None)  # the cause of an urllib3 error
        found = inner if isinstance(inner, BaseException) else found.__cause__ or found.__context__

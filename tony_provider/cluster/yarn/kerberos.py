"""SPNEGO for requests of the Airflow side, with the worker's own ticket (``airflow kerberos`` or kinit).

Also reads the ticket's owner, and its lifetime from the credential cache. Requires the library of MIT Kerberos.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from requests import PreparedRequest, Response
from requests.auth import AuthBase

from tony_provider.cluster.errors import ClusterAuthError, ConnectionProblem
from tony_provider.runtime.hadoop.gss import GssError, TicketExchange, Tickets

_REDIRECTIONS, _ERRORS, _SERVER_ERRORS = 300, 400, 500  # first code of each class of HTTP status codes
_REFUSALS = (401, 403)


def spnego_auth() -> AuthBase:
    """Return thread-safe SPNEGO authentication for requests.

    Raises ConnectionProblem if the library is not installed.
    """
    return _Spnego(own_tickets())


class _Spnego(AuthBase):
    """Authenticates every request with a new SPNEGO exchange, so that the server proves its identity in each answer.

    With a session cookie Hadoop would omit this proof, so cookies are not sent.
    """

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        exchange = self._tickets.negotiate(urlsplit(request.url or "").hostname or "")
        request.headers.pop("Cookie", None)
        request.headers["Authorization"] = exchange.authorization
        request.hooks.setdefault("response", []).append(lambda response, **_: _check_server(exchange, response))
        return request


def _check_server(exchange: TicketExchange, response: Response) -> None:
    """Check the server's proof if its answer is going to be used. Refusals and redirections are not used.

    Hadoop also proves its identity in errors, except in Kerberos refusals.
    """
    answer = response.headers.get("WWW-Authenticate")
    status = response.status_code
    believed = status < _REDIRECTIONS or (_ERRORS <= status < _SERVER_ERRORS and status not in _REFUSALS)
    if believed or (answer and status not in _REFUSALS):
        exchange.check(answer)


def _auth_error(_host: str, problem: str) -> Exception:
    return ClusterAuthError(problem)


def own_tickets(error: Callable[[str, str], Exception] = _auth_error) -> Tickets:
    """Return the worker's own tickets. ``error``: see ``Tickets``; the default creates a ClusterAuthError.

    Raises ConnectionProblem if the library is not installed.
    """
    try:
        return Tickets(error)
    except GssError as problem:
        raise ConnectionProblem(f"{problem} (Debian: libgssapi-krb5-2, Red Hat: krb5-libs)") from problem


@attrs.frozen
class Ticket:
    """A Kerberos ticket of the worker."""

    principal: str
    seconds: int | None  # remaining validity; None if unlimited or renewed from a keytab

    @property
    def user(self) -> str:
        """Return the owner's short name by Hadoop's default rule: the part before ``/`` or ``@``."""
        return self.principal.split("@")[0].split("/")[0]


def ticket() -> Ticket:
    """Return the worker's own ticket. Raises ClusterAuthError if there is none."""
    try:
        return Ticket(*own_tickets().owner())
    except GssError as error:
        raise ClusterAuthError(str(error)) from error


def ticket_user() -> str:
    """Return the short name of the ticket's owner. Raises ClusterAuthError if there is no ticket."""
    return ticket().user


_VERSION = 0x0504
_RENEWABLE = 0x00800000
_GRANTING = b"krbtgt"
_MOST_BYTES = 1 << 20


@attrs.frozen
class GrantingTicket:
    """A ticket-granting ticket, with times in epoch seconds."""

    until: int
    renewable_until: int  # equal to ``until`` if the ticket is not renewable

    @classmethod
    def read(cls, cache: str) -> GrantingTicket | None:
        """Read the ticket from a cache such as ``FILE:/tmp/krb5cc_1000``.

        Return None if it is not a file or has no ticket.
        """
        kind, _, path = cache.rpartition(":")
        if kind not in ("", "FILE"):
            return None
        try:
            with Path(path).open("rb") as file:
                return next(_granting(_Reader(file.read(_MOST_BYTES))), None)
        except (OSError, struct.error):
            return None


def _granting(reader: _Reader) -> Iterator[GrantingTicket]:
    if reader.number("H") != _VERSION:
        return
    reader.take(reader.number("H"))
    reader.principal()
    while reader.left:
        reader.principal()  # the client
        service = reader.principal()
        reader.number("H")
        reader.data()  # the key
        _, _, end, renew_till = (reader.number("I") for _ in range(4))
        reader.take(1)
        flags = reader.number("I")
        for _ in range(2):  # addresses, authorisation data
            for _ in range(reader.number("I")):
                reader.number("H")
                reader.data()
        reader.data()
        reader.data()  # the ticket, and a second one
        if service[:1] == [_GRANTING]:
            yield GrantingTicket(end, max(end, renew_till) if flags & _RENEWABLE else end)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        """Raise struct.error if fewer bytes are left."""
        if size > self.left:
            raise struct.error("the file is cut off")
        self._at += size
        return self._content[self._at - size : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))[0])

    def data(self) -> bytes:
        return self.take(self.number("I"))

    def principal(self) -> list[bytes]:
        """Return the components of the principal, without the realm."""
        self.number("I")
        count = self.number("I")
        self.data()
        return [self.data() for _ in range(min(count, self.left))]

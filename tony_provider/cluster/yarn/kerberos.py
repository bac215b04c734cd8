"""SPNEGO for requests of the Airflow side, with the worker's own ticket (``airflow kerberos`` or kinit).

Needs the extra ``kerberos``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import attrs
from requests import PreparedRequest
from requests.auth import AuthBase

from tony_provider.cluster.errors import ClusterAuthError, ConnectionProblem

_NOT_INSTALLED = "Kerberos needs the extra: pip install 'tony-provider[kerberos]'"


def spnego_auth() -> AuthBase:
    """SPNEGO authentication for requests, in any threads.

    Raises ConnectionProblem when the libraries are not installed.
    """
    try:
        import requests_gssapi
    except ImportError as error:
        raise ConnectionProblem(_NOT_INSTALLED) from error
    return _Spnego(lambda: requests_gssapi.HTTPSPNEGOAuth(mutual_authentication=requests_gssapi.OPTIONAL))


class _Spnego(AuthBase):
    """requests-gssapi's keeps the state of each host's last exchange: two threads that share it mix theirs up, and the
    C library below it then ends the process. So each request has one of its own.
    """

    def __init__(self, make: Callable[[], AuthBase]) -> None:
        self._make = make

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        return self._make()(request)


def negotiate(host: str) -> str:
    """The value of an ``Authorization`` header for ``HTTP@host``. Raises ClusterAuthError without a usable ticket."""
    try:
        import gssapi
        from gssapi.raw.misc import GSSError
    except ImportError as error:
        raise ConnectionProblem(_NOT_INSTALLED) from error
    try:
        service = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
        token = gssapi.SecurityContext(name=service, usage="initiate").step()
    except GSSError as error:
        raise ClusterAuthError(f"no Kerberos ticket for HTTP@{host}: {error}") from error
    return f"Negotiate {base64.b64encode(token or b'').decode()}"


@attrs.frozen
class Ticket:
    """A Kerberos ticket of the worker."""

    principal: str
    seconds: int | None  # that it is still valid; None: without end, or renewed by itself from a keytab

    @property
    def user(self) -> str:
        """Its owner's short name, by Hadoop's default rule: what stands before ``/`` or ``@``."""
        return self.principal.split("@")[0].split("/")[0]


def ticket() -> Ticket:
    """The worker's own ticket. Raises ClusterAuthError when there is none."""
    try:
        import gssapi
        from gssapi.raw.misc import GSSError
    except ImportError as error:
        raise ConnectionProblem(_NOT_INSTALLED) from error
    try:
        credentials = gssapi.Credentials(usage="initiate")
        principal = str(credentials.name)
    except GSSError as error:
        raise ClusterAuthError(f"there is no Kerberos ticket (run kinit or `airflow kerberos`): {error}") from error
    try:
        seconds = credentials.lifetime
    except gssapi.exceptions.ExpiredCredentialsError:
        seconds = 0
    return Ticket(principal, seconds)


def ticket_user() -> str:
    """The short name of the ticket's owner. Raises ClusterAuthError when there is no ticket."""
    return ticket().user

"""SPNEGO for the Airflow side, with the worker's own ticket (``airflow kerberos`` or kinit).

Needs the extra ``kerberos``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from tony_provider.cluster.errors import ClusterAuthError, ConnectionProblem

if TYPE_CHECKING:
    from requests.auth import AuthBase

_NOT_INSTALLED = "Kerberos needs the extra: pip install 'tony-provider[kerberos]'"


def spnego_auth() -> AuthBase:
    """For requests. Raises ConnectionProblem when the libraries are not installed."""
    try:
        import requests_gssapi
    except ImportError as error:
        raise ConnectionProblem(_NOT_INSTALLED) from error
    auth: AuthBase = requests_gssapi.HTTPSPNEGOAuth(mutual_authentication=requests_gssapi.OPTIONAL)
    return auth


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


def ticket_user() -> str:
    """The short name of the ticket's owner, by Hadoop's default rule: what stands before ``/`` or ``@``.

    Raises ClusterAuthError when there is no ticket.
    """
    try:
        import gssapi
        from gssapi.raw.misc import GSSError
    except ImportError as error:
        raise ConnectionProblem(_NOT_INSTALLED) from error
    try:
        principal = str(gssapi.Credentials(usage="initiate").name)
    except GSSError as error:
        raise ClusterAuthError(f"there is no Kerberos ticket (run kinit or `airflow kerberos`): {error}") from error
    return principal.split("@")[0].split("/")[0]

"""The local cluster's Authenticator: who can read the application's folder is its owner."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from http import HTTPStatus

from tony_provider.runtime.am.web.authenticator import Authenticator
from tony_provider.runtime.am.web.http_messages import Head, HttpError
from tony_provider.runtime.am.web.router import AccessType
from tony_provider.runtime.protocol.tracking import SECRET_FILE

_HOW = f"the password of this page is in the application's folder, in the file {SECRET_FILE}; any user name will do"


class LocalAuthenticator(Authenticator):
    """Lets in whoever knows the secret of the application's folder.

    The secret comes as programs say it, or as browsers do, which ask for a password.
    """

    def __init__(self, secret: str, owner: str) -> None:
        self._expected = secret.encode()
        self._owner = owner

    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Do nothing: there are no access lists here."""

    def expects(self, source: str) -> bool:
        """Anybody: the secret tells, not the address."""
        return True

    async def look_up(self) -> None:
        """Do nothing: addresses do not matter."""

    async def visitor(self, source: str, head: Head) -> str:
        given = head.values("authorization")
        if len(given) != 1 or not hmac.compare_digest(_secret(given[0]), self._expected):
            raise HttpError(HTTPStatus.UNAUTHORIZED, _HOW, {"WWW-Authenticate": 'Basic realm="tony", charset="UTF-8"'})
        return self._owner

    async def check(self, user: str, access: AccessType) -> None:
        """Allow everything: whoever gets here is the owner."""


def _secret(authorization: str) -> bytes:
    """Empty when there is none in it."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""

"""The local cluster's rule: who can read the application's folder is its owner."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus

from tony_provider.runtime.am.web.gate import Gate
from tony_provider.runtime.am.web.messages import Head, HttpError
from tony_provider.runtime.am.web.router import Access


class LocalGate(Gate):
    def __init__(self, secret: str, owner: str) -> None:
        self._expected = f"Bearer {secret}".encode()
        self._owner = owner

    def learn(self, access_lists: Mapping[str, str]) -> None:
        """There are none here."""

    async def visitor(self, source: str, head: Head) -> str:
        given = head.values("authorization")
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._expected):
            raise HttpError(HTTPStatus.FORBIDDEN, "the application's folder has the secret that opens this page")
        return self._owner

    async def check(self, user: str, access: Access) -> None:
        """Its owner may do everything."""

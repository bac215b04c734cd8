"""YARN's Authenticator: only the web proxy is answered, and it says who asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Optional
from urllib.parse import unquote_plus

from tony_provider.runtime.am.web.authenticator import Authenticator
from tony_provider.runtime.am.web.http_messages import Head, HttpError
from tony_provider.runtime.am.web.proxies import Proxies
from tony_provider.runtime.am.web.router import AccessType
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.hadoop.access_list import AccessList

_USER_COOKIE = "proxy-user"  # nobody signs it: from anywhere but the proxy it is worth nothing


class YarnAuthenticator(Authenticator):
    """Lets in whom YARN's web proxy names, as far as the application's access lists allow."""

    def __init__(self, access: YarnAccess, owners: Collection[str]) -> None:
        """``owners``: the names of the user whom the application runs as."""
        self._proxies = Proxies(access.proxies)
        self._owners = frozenset(owners)
        heeded = access.administrators is not None
        self._administrators = [
            AccessList.parse(text) for text in (access.administrators, *access.queue_administrators) if heeded and text
        ]
        # Where YARN heeds no lists everybody may look at everything; to interfere one is still to be the owner.
        self._lists = {AccessType.VIEW: AccessList(everybody=not heeded), AccessType.MODIFY: AccessList()}
        self._heeded = heeded

    def learn(self, access_lists: Mapping[str, str]) -> None:
        for access in AccessType:
            if access.value in access_lists and not self._lists[access].everybody:
                self._lists[access] = AccessList.parse(access_lists[access.value])

    async def visitor(self, source: str, head: Head) -> str:
        if not await self._proxies.include(source):
            message = "this application master answers YARN's web proxy only; use the application's tracking URL"
            raise HttpError(HTTPStatus.FORBIDDEN, message)
        return _proxy_user(head) or ""

    async def check(self, user: str, access: AccessType) -> None:
        if user in self._owners:
            return
        for each in (self._lists[access], *self._administrators):
            if await each.allows(user):
                return
        wanted = "look at" if access is AccessType.VIEW else "interfere with"
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"{user or 'an unnamed user'} may not {wanted} this application of {', '.join(sorted(self._owners))}: "
            f"neither its access list {access.value} nor YARN's administrators and the queue's have that user",
        )


def _proxy_user(head: Head) -> Optional[str]:
    """None when it is not said, or more than once."""
    cookies = [part.strip().partition("=") for value in head.values("cookie") for part in value.split(";")]
    users = [unquote_plus(value.strip('"')) for name, _, value in cookies if name == _USER_COOKIE]
    return users[0] if len(users) == 1 else None

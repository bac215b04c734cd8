"""Whom the application master answers over HTTP. ``yarn_gate`` and ``local_gate`` stand behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tony_provider.runtime.am.web.http_messages import Head
from tony_provider.runtime.am.web.router import AccessType


class Authenticator(ABC):
    @abstractmethod
    async def visitor(self, source: str, head: Head) -> str:
        """The user who asks, from the address ``source``; empty where nobody says. Raises HttpError for strangers."""

    @abstractmethod
    async def check(self, user: str, access: AccessType) -> None:
        """Raises HttpError when this user may not."""

    @abstractmethod
    def learn(self, access_lists: Mapping[str, str]) -> None:
        """The application's own access lists (VIEW_APP, MODIFY_APP), as the cluster has them."""

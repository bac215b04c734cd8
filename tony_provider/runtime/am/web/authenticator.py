"""The Authenticator interface: whom the application master answers over HTTP.

``yarn_authenticator`` and ``local_authenticator`` stand behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tony_provider.runtime.am.web.http_messages import Head
from tony_provider.runtime.am.web.router import AccessType


class Authenticator(ABC):
    """Says who asks, and whether that user may do what is asked."""

    @abstractmethod
    def expects(self, source: str) -> bool:
        """Whether anybody may be answered at this address, as far as that is known now."""

    @abstractmethod
    async def look_up(self) -> None:
        """Look up again which addresses are expected. To be called now and then."""

    @abstractmethod
    async def visitor(self, source: str, head: Head) -> str:
        """The user who asks, from the address ``source``; empty where nobody says. Raises HttpError for strangers."""

    @abstractmethod
    async def check(self, user: str, access: AccessType) -> None:
        """Check that this user may do this. Raises HttpError when not."""

    @abstractmethod
    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Heed these access lists of the application from now on (VIEW_APP, MODIFY_APP), as the cluster has them."""

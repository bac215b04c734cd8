"""The framework ``generic``: any program whose processes train together, with ranks and a place to meet.

Its processes find TONY_RANK, TONY_WORLD_SIZE and TONY_RENDEZVOUS, as in every job. They start together, and all of them
start again when one fails.
"""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member


class Generic(CollectiveFramework):
    """A gang of which nothing more is known."""

    name = "generic"

    def membership(self, member: Member) -> TaskEnvironment:
        return TaskEnvironment({})

"""Framework ``generic``: any program whose processes train together, with ranks and a rendezvous address.

Its processes get TONY_RANK, TONY_WORLD_SIZE and TONY_RENDEZVOUS, as in every job. They start together, and if one
fails, all restart.
"""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member


class Generic(CollectiveFramework):
    """A gang of processes without variables of a specific library."""

    name = "generic"
    starts_alone = True

    def membership(self, member: Member) -> TaskEnvironment:
        return TaskEnvironment({})

"""The framework ``jax``: ``jax.distributed.initialize()`` needs no arguments.

JAX asks classes that it knows which cluster it is on; ours (``tony_jax``, beside tony_sdk), which is
there as soon as ``jax`` is imported, answers from these variables.
"""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member

COORDINATOR = "JAX_COORDINATOR_ADDRESS"


class Jax(CollectiveFramework):
    """Processes that meet at JAX's coordinator, which rank 0 runs."""

    name = "jax"
    made_variables = frozenset({COORDINATOR})

    def membership(self, member: Member) -> TaskEnvironment:
        return TaskEnvironment({COORDINATOR: str(member.meeting_point()), contract.ENV_JAX: "1"})

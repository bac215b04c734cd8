"""Framework ``jax``: ``jax.distributed.initialize()`` works without arguments.

JAX queries known cluster classes for its environment. When ``jax`` is imported, ``tony_jax`` (next to tony_sdk) adds a
class that reads the variables of the process. If a container runs several processes, each gets its share of the
container's GPUs, because by default JAX lets each process use all of them.
"""

from __future__ import annotations

from types import MappingProxyType

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member

COORDINATOR = "JAX_COORDINATOR_ADDRESS"
LOCAL_DEVICES = "JAX_LOCAL_DEVICE_IDS"


class Jax(CollectiveFramework):
    """Processes that meet at JAX's coordinator, which rank 0 runs."""

    name = "jax"
    made_variables = frozenset({COORDINATOR})
    only_device = MappingProxyType({LOCAL_DEVICES: "0"})

    exposed = "JAX accepts any client, which could change the exchanged data, or end the training"

    def membership(self, member: Member) -> TaskEnvironment:
        env = {COORDINATOR: str(member.meeting_point()), contract.ENV_JAX: "1"}
        if member.local_world_size > 1 and member.gpus:
            env[LOCAL_DEVICES] = ",".join(map(str, _own_gpus(member)))
        return TaskEnvironment(env)


def _own_gpus(member: Member) -> range:
    """Return an equal share of the container's GPUs; if there are too few, neighbouring processes share a GPU."""
    share = max(1, member.gpus // member.local_world_size)
    first = member.local_rank * member.gpus // member.local_world_size
    return range(first, first + share)

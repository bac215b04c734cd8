"""Framework ``pytorch``: the variables of ``torch.distributed``'s ``env://`` rendezvous, and those of torchrun.

A program calls ``init_process_group()`` as it would under torchrun, for DDP, FSDP or other uses. If a program starts
torchrun, the PET_* variables replace torchrun's arguments (``torch.distributed.argparse_util.env``). Each task is then
a node of torchrun, and all nodes meet at rank 0. PyTorch's documentation describes the variables under "Environment
variable initialization" and "torchrun".
"""

from __future__ import annotations

from types import MappingProxyType

from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member


class PyTorch(CollectiveFramework):
    """Processes that meet by MASTER_ADDR and MASTER_PORT."""

    name = "pytorch"
    made_variables = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"})

    local_variables = frozenset({"LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    only_device = MappingProxyType({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})

    interface_variables = frozenset({"GLOO_SOCKET_IFNAME"})

    # The flight recorder appends the rank, and writes only if the job sets the size of its buffer.
    debug_files = MappingProxyType(
        dict.fromkeys(("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), "comm_trace_rank_")
    )

    exposed = "PyTorch accepts any client, which could change the exchanged data, or run code as the job's user"

    def membership(self, member: Member) -> TaskEnvironment:
        meeting = member.meeting_point()
        rank, world_size = str(member.rank), str(member.world_size)
        return TaskEnvironment(
            {
                "MASTER_ADDR": meeting.host,
                "MASTER_PORT": str(meeting.port),
                "RANK": rank,
                "WORLD_SIZE": world_size,
                "LOCAL_RANK": str(member.local_rank),
                "LOCAL_WORLD_SIZE": str(member.local_world_size),
                "GROUP_RANK": str(member.node_rank),  # torchrun's rank of the node; each task is a node
                "GROUP_WORLD_SIZE": str(member.node_count),
                **_torchrun(member),
            }
        )


def _torchrun(member: Member) -> dict[str, str]:
    """Return torchrun's variables. If a container runs several processes, each is a torchrun node with one process."""
    return {
        "PET_NNODES": str(member.world_size),
        "PET_NODE_RANK": str(member.rank),
        "PET_NPROC_PER_NODE": str(max(1, member.gpus) if member.local_world_size == 1 else 1),
        # The other backend, c10d, orders nodes by name, so rank 0 and the checkpoints would be at an arbitrary node.
        "PET_RDZV_BACKEND": "static",
        "PET_MASTER_ADDR": member.meeting_point().host,
        "PET_MASTER_PORT": str(member.meeting_point().port),
        # Our executor restarts a failed process, in every task and from the newest checkpoint.
        "PET_MAX_RESTARTS": "0",
    }

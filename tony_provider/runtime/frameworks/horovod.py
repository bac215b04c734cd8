"""Framework ``horovod``: Horovod's Gloo controller without ssh, mpirun or horovodrun.

Processes get the variables that horovodrun would set (``horovod/runner/gloo_run.py`` of Horovod 0.28), and each task is
a separate host. The processes meet at a small HTTP key-value store, ``tony_horovod`` (next to tony_sdk), which runs
next to rank 0 and replaces horovodrun's store.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import MAIN_PORT, HelperProcess, TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member
from tony_provider.runtime.jobspec.model import Role

RENDEZVOUS_PORT = "rendezvous"
_RENDEZVOUS = HelperProcess("Horovod's rendezvous", base.run_module("tony_horovod"))


class Horovod(CollectiveFramework):
    """Processes that meet at Gloo's HTTP rendezvous."""

    name = "horovod"
    made_variables = frozenset({"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"}) | {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        "HOROVOD_GLOO_RENDEZVOUS_PORT",
    }

    local_variables = frozenset({"HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"})

    interface_variables = frozenset({"HOROVOD_GLOO_IFACE"})

    exposed = "Horovod accepts any client, which could change the exchanged data, or run code as the job's user"

    def ports(self, task_type: str, role: Role) -> Sequence[str]:
        return (MAIN_PORT, RENDEZVOUS_PORT)

    def membership(self, member: Member) -> TaskEnvironment:
        rendezvous = member.meeting_point(RENDEZVOUS_PORT)
        rank, size = str(member.rank), str(member.world_size)
        env = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "900",  # some processes restore their checkpoint for longer than others
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": rendezvous.host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(rendezvous.port),
            # two tasks on a node are two hosts for Horovod
            "HOROVOD_HOSTNAME": f"{member.task.host}-{member.node_rank}",
            "HOROVOD_RANK": rank,
            "HOROVOD_SIZE": size,
            "HOROVOD_LOCAL_RANK": str(member.local_rank),
            "HOROVOD_LOCAL_SIZE": str(member.local_world_size),
            "HOROVOD_CROSS_RANK": str(member.cross_rank),
            "HOROVOD_CROSS_SIZE": str(member.cross_size),
        }
        # Horovod itself tries to reach the rendezvous for only 1.5 s.
        wait = base.wait_until_reachable(rendezvous)
        return TaskEnvironment(env, before=wait, helpers=(_RENDEZVOUS,) if member.rank == 0 else ())

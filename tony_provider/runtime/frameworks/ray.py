"""The framework ``ray``: a Ray cluster for the time of the job, with the user's driver beside its head.

The chief's command is the driver, which ``ray.init()`` connects by RAY_ADDRESS; its end is the job's. Workers need no
command: each is a node of the cluster with the CPUs, GPUs and memory of its container. A worker that dies starts again
alone, since Ray does its tasks elsewhere meanwhile; when the head dies, everything starts again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import (
    MAIN_PORT,
    ClusterSpec,
    Framework,
    HelperProcess,
    TaskAddress,
    TaskEnvironment,
)
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role, TaskSpec
from tony_provider.runtime.jobspec.problems import Problem, child
from tony_provider.runtime.jobspec.task_types import in_cluster

# TMPDIR is short enough for Ray's sockets, and gone with the container: what is in /tmp would stay.
# With --block, ray start ends with exit code 1 when one of a node's processes has died, such as the head's GCS server.
_START = 'exec ray start --block --temp-dir="$TMPDIR/ray" $TONY_RAY_ARGUMENTS'
_HEAD = HelperProcess("Ray's head", f"{_START} --head --port=$TONY_PORT --include-dashboard=false")
_NODE = f"{_START} --address=$RAY_ADDRESS"
_TOKEN = "RAY_AUTH_TOKEN"  # since Ray 2.52; older ones read neither this nor RAY_AUTH_MODE
_FOR_OBJECTS = 0.3  # of the container's memory, as Ray itself takes of a machine's
_LEAST_FOR_OBJECTS = 80 << 20  # bytes: Ray takes no less than 75 MiB


class Ray(Framework):
    """A head with the user's driver, and workers."""

    name = "ray"
    made_variables = frozenset({"RAY_ADDRESS"})
    secret_variables = frozenset({_TOKEN})

    exposed = (
        "Ray asks for the job's token from version 2.52 on, and sends it and all data in clear: who reads along, and "
        "with an older Ray whoever connects, can run code as the job's user"
    )

    def problems(self, job: JobSpec) -> list[Problem]:
        found = super().problems(job)
        roles = job.roles
        if Role.CHIEF not in roles.values():
            found.append(Problem("tasks", sorted(roles), "ray needs a task type chief: Ray's head, with your driver"))
        for name, role in roles.items():
            if role is Role.PS:
                found.append(Problem(child("tasks", name), role.value, "ray has no parameter servers"))
        return found

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """The chief: workers run without end."""
        return [name for name, role in job.roles.items() if role is Role.CHIEF]

    def scope(self, role: Role) -> RestartScope:
        """A worker starts again alone. The cluster does not outlive its head."""
        return RestartScope.GANG if role is Role.CHIEF else RestartScope.TASK

    def several_processes(self, role: Role) -> bool:
        """False: Ray starts its processes itself, as many as a container has virtual cores."""
        return False

    def default_command(self, role: Role) -> str:
        """Workers serve Ray."""
        return _NODE if role is Role.WORKER else ""

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        head = next(each for each in cluster.tasks if each.role is Role.CHIEF)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        spec = job.tasks[task_type]
        env = {
            "RAY_ADDRESS": head.main,
            "RAY_AUTH_MODE": "token",  # else whoever reaches a port of Ray's can run code as the job's user
            contract.ENV_RAY_ARGUMENTS: " ".join(_arguments(spec, task)),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is told to end asks the head first, for 30 seconds: here that has ended, or is ending, too.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        }
        if task != head:
            return TaskEnvironment(env)
        wait = base.wait_until_reachable(Address(head.host, head.ports[MAIN_PORT]))
        return TaskEnvironment(env, before=wait, helpers=(_HEAD,))


def _arguments(spec: TaskSpec, task: TaskAddress) -> list[str]:
    """What a node says of itself: Ray would count the whole machine."""
    return [
        f"--node-ip-address={task.host}",
        f"--num-cpus={spec.vcores}",
        f"--num-gpus={spec.gpus}",
        f"--memory={int(spec.memory * (1 - _FOR_OBJECTS)) << 20}",
        f"--object-store-memory={max(_LEAST_FOR_OBJECTS, int(spec.memory * _FOR_OBJECTS) << 20)}",
        "--disable-usage-stats",
    ]

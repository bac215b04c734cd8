"""Framework ``ray``: a Ray cluster for the duration of the job, with the user's driver next to the head.

The chief's command is the driver. ``ray.init()`` finds the head by RAY_ADDRESS. The job ends with the driver. Workers
need no command: each is a Ray node with the CPUs, GPUs and memory of its container. A failed worker restarts alone,
because Ray reassigns its tasks. If the head fails, all tasks restart.
"""

from __future__ import annotations

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
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role, TaskSpec, in_cluster

# TMPDIR is short enough for Ray's sockets and is deleted with the container, unlike /tmp. With --block, ray start exits
# with code 1 if a process of the node has died, such as the head's GCS server.
_START = 'exec ray start --block --temp-dir="$TMPDIR/ray" $TONY_RAY_ARGUMENTS'
_HEAD = HelperProcess("Ray's head", f"{_START} --head --port=$TONY_PORT --include-dashboard=false")
_NODE = f"{_START} --address=$RAY_ADDRESS"
_TOKEN = "RAY_AUTH_TOKEN"  # since Ray 2.52; older versions ignore it and RAY_AUTH_MODE
_FOR_OBJECTS = 0.3  # share of the container's memory for objects; by default, Ray takes it of the machine's memory
_LEAST_FOR_OBJECTS = 80 << 20  # bytes; Ray's own minimum is 75 MiB


class Ray(Framework):
    """Ray head with the user's driver, and Ray nodes as workers."""

    name = "ray"
    made_variables = frozenset({"RAY_ADDRESS"})
    secret_variables = frozenset({_TOKEN})
    required_roles = ((Role.CHIEF, "needs a task type chief: Ray's head, with your driver"),)
    forbidden_roles = ((Role.PS, "has no parameter servers"),)
    decisive_roles = frozenset({Role.CHIEF})  # workers run without end
    one_process = True  # Ray itself starts one process for each virtual core of a container

    exposed = "Ray sends its token in clear text, so a process that reads the traffic could run code as the job's user"

    def scope(self, role: Role) -> RestartScope:
        """Return TASK for workers, which restart alone, and GANG for the head."""
        return RestartScope.GANG if role is Role.CHIEF else RestartScope.TASK

    def default_command(self, role: Role) -> str:
        """Return the command of a Ray node for workers."""
        return _NODE if role is Role.WORKER else ""

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        head = next(each for each in cluster.tasks if each.role is Role.CHIEF)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        spec = job.tasks[task_type]
        env = {
            "RAY_ADDRESS": head.main,
            "RAY_AUTH_MODE": "token",  # otherwise anyone who reaches a Ray port can run code as the job's user
            contract.ENV_RAY_ARGUMENTS: " ".join(_arguments(spec, task)),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that receives SIGTERM contacts the head for up to 30 s. Here the head has ended or is also ending.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        }
        if task != head:
            return TaskEnvironment(env)
        wait = base.wait_until_reachable(Address(head.host, head.ports[MAIN_PORT]))
        return TaskEnvironment(env, before=wait, helpers=(_HEAD,))


def _arguments(spec: TaskSpec, task: TaskAddress) -> list[str]:
    """Return the resources of the container as arguments; otherwise Ray uses those of the whole machine."""
    return [
        f"--node-ip-address={task.host}",
        f"--num-cpus={spec.vcores}",
        f"--num-gpus={spec.gpus}",
        f"--memory={int(spec.memory * (1 - _FOR_OBJECTS)) << 20}",
        f"--object-store-memory={max(_LEAST_FOR_OBJECTS, int(spec.memory * _FOR_OBJECTS) << 20)}",
        "--disable-usage-stats",
    ]

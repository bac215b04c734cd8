"""Framework ``mxnet``: MXNet's parameter servers (``ps-lite``), by the DMLC_* variables of its launchers.

Tasks of role ps are MXNet servers, chief and workers are MXNet workers, and the scheduler runs next to rank 0. A
process with DMLC_ROLE scheduler or server does its work while it imports ``mxnet``. MXNet's documentation describes the
variables under "Distributed Training in MXNet".
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import (
    MAIN_PORT,
    PYTHON_COMMAND,
    TRACKED,
    ClusterSpec,
    Framework,
    HelperProcess,
    TaskEnvironment,
)
from tony_provider.runtime.jobspec.model import JobSpec, Role, in_cluster, ranks

SCHEDULER_PORT = "scheduler"
_IMPORT = f"exec {PYTHON_COMMAND} -c 'import mxnet'"
# The scheduler exits with code 0 when all workers have left, perhaps before their programs end.
_SCHEDULER = HelperProcess("MXNet's scheduler", f"DMLC_ROLE=scheduler; export DMLC_ROLE\n{_IMPORT}")


class MXNet(Framework):
    """Workers and servers that meet at a scheduler."""

    name = "mxnet"
    made_variables = frozenset({"DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"}) | {
        "DMLC_NUM_SERVER",
        "DMLC_NUM_WORKER",
    }

    required_roles = ((Role.PS, "needs parameter servers: a task type ps"),)
    decisive_roles = TRACKED  # MXNet's chief is one of the workers
    one_process = True  # a worker uses all GPUs of its container

    exposed = "MXNet's servers accept any client, which could change the model, or run code as the job's user"

    def ports(self, task_type: str, role: Role) -> Sequence[str]:
        return (MAIN_PORT, SCHEDULER_PORT)

    def default_command(self, role: Role) -> str:
        """Return a command for parameter servers, which need no user program."""
        return _IMPORT if role is Role.PS else ""

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        rank_of = ranks(cluster.tasks)
        first = cluster.task(*min(rank_of, key=rank_of.__getitem__))
        servers = sum(task.role is Role.PS for task in cluster.tasks)
        env = {
            "DMLC_ROLE": "server" if task.role is Role.PS else "worker",
            "DMLC_PS_ROOT_URI": first.host,
            "DMLC_PS_ROOT_PORT": str(first.ports[SCHEDULER_PORT]),
            "DMLC_NUM_SERVER": str(servers),
            "DMLC_NUM_WORKER": str(len(rank_of) - servers),
        }
        return TaskEnvironment(env, helpers=(_SCHEDULER,) if task == first else ())

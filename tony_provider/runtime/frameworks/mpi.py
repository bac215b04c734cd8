"""The framework ``mpi``: the chief's command starts processes in all containers, by mpirun or another such launcher.

A launcher starts its daemons by a remote shell. Here that is a program of ours, which has commands run by another one
(``tony_mpi``, beside tony_sdk) that waits in every container and obeys only this job. Launchers find it, and a file of
the containers, by variables of their own: those of Open MPI 4 and of Hydra, MPICH's. The containers are called
tony-worker-0 and so on, names that no network knows, since two of them may be on one node.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, HelperProcess, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, Role
from tony_provider.runtime.jobspec.problems import Problem, child
from tony_provider.runtime.jobspec.task_types import in_cluster, ranks

_SHELL = "tony-rsh"  # the remote shell
_HERE = "tony-here"  # what it starts goes on in its own container's directory
_SLOTS = "tony-hosts"  # as Open MPI writes it
_COUNTS = "tony-machines"  # as Hydra does
_SCRIPTS = (_SHELL, _HERE)
_BY_FILE = {
    contract.ENV_REMOTE_SHELL: _SHELL,
    "OMPI_MCA_plm_rsh_agent": _SHELL,
    "HYDRA_LAUNCHER_EXEC": _SHELL,
    contract.ENV_HOST_FILE: _SLOTS,
    "OMPI_MCA_orte_default_hostfile": _SLOTS,
    "HYDRA_HOST_FILE": _COUNTS,
}
_IN_PATH = f'PATH="${{{contract.ENV_REMOTE_SHELL}%/*}}:$PATH"; export PATH'
_EXECUTABLE = f'(cd "${{{contract.ENV_REMOTE_SHELL}%/*}}" && chmod +x {" ".join(_SCRIPTS)}) || exit'
_SERVE = base.run_module("tony_mpi serve")
_LAUNCHING = HelperProcess("MPI's remote shell in the chief", f"{_IN_PATH}\n{_SERVE}")


class MPI(Framework):
    """A launcher in the chief, and containers where it starts processes."""

    name = "mpi"
    made_variables = frozenset(name for name in _BY_FILE if not name.startswith(contract.OWN_ENV_PREFIX))
    secret_variables = frozenset({contract.ENV_MPI_SECRET})

    exposed = (
        "MPI's own daemons and processes (not what starts them, which asks for the job's secret) take anybody for one "
        "of the job: who connects can read and change what they exchange, and end the job"
    )

    def problems(self, job: JobSpec) -> list[Problem]:
        found = super().problems(job)
        roles = job.roles
        if Role.CHIEF not in roles.values():
            found.append(Problem("tasks", sorted(roles), "mpi needs a task type chief, whose command is the launcher"))
        for name, role in roles.items():
            if role is Role.PS:
                found.append(Problem(child("tasks", name), role.value, "mpi has no parameter servers"))
        return found

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """The chief: workers wait for commands without end."""
        return [name for name, role in job.roles.items() if role is Role.CHIEF]

    def elastic(self, role: Role) -> bool:
        """True for workers: the file of the containers names those that there are."""
        return role is Role.WORKER

    def several_processes(self, role: Role) -> bool:
        """False: the launcher starts them."""
        return False

    def default_command(self, role: Role) -> str:
        """Workers wait for commands."""
        return _SERVE if role is Role.WORKER else ""

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        slots = _slots(job, cluster)
        files = {
            _SLOTS: "".join(f"{host} slots={count}\n" for host, count in slots.items()),
            _COUNTS: "".join(f"{host}:{count}\n" for host, count in slots.items()),
            _SHELL: _script("run"),
            _HERE: _script("here"),
        }
        env = {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_ENV": "none",  # each process has its own container's variables, and not the chief's
            # Containers of one node would be bound to the same cores, each by a daemon that knows nothing of the other.
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        before = f"{_EXECUTABLE}\n{_IN_PATH}"
        serving = (_LAUNCHING,) if task.role is Role.CHIEF else ()
        return TaskEnvironment(env, files, dict(_BY_FILE), before, serving)


def _slots(job: JobSpec, cluster: ClusterSpec) -> dict[str, int]:
    """How many processes each container has room for, by its name, in the order of the ranks: one for each GPU.

    Where a type has none, one for each virtual core.
    """
    rank_of = ranks(cluster.tasks)
    there = [task for task in cluster.tasks if (task.type, task.index) in rank_of and task.host]
    there.sort(key=lambda task: rank_of[task.type, task.index])
    return {
        f"tony-{task.type}-{task.index}": job.tasks[task.type].gpus or job.tasks[task.type].vcores for task in there
    }


def _script(what: str) -> str:
    return f'#!/bin/sh\nexec {base.PYTHON_COMMAND} -m tony_mpi {what} "$@"\n'

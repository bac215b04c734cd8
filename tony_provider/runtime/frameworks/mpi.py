"""Framework ``mpi``: the chief's command is a launcher such as mpirun, which starts processes in all containers.

A launcher starts its daemons by a remote shell. Our remote shell sends the commands to ``tony_mpi`` (next to tony_sdk),
which waits in every container and accepts commands of this job only. Environment variables pass the paths of the shell
and of the host file to Open MPI 4 and Hydra (MPICH). The host file names containers, such as tony-worker-0. DNS does
not know these names, because two containers may share a node.
"""

from __future__ import annotations

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, HelperProcess, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, Role, in_cluster, ranks

_SHELL = "tony-rsh"  # the remote shell
_HERE = "tony-here"  # starts the remote command in the directory of its container
_SLOTS = "tony-hosts"  # host file in Open MPI's format
_COUNTS = "tony-machines"  # host file in Hydra's format
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
    """A launcher in the chief, and containers in which it starts processes."""

    name = "mpi"
    made_variables = frozenset(name for name in _BY_FILE if not name.startswith(contract.OWN_ENV_PREFIX))
    secret_variables = frozenset({contract.ENV_MPI_SECRET})
    required_roles = ((Role.CHIEF, "needs a task type chief, whose command is the launcher"),)
    forbidden_roles = ((Role.PS, "has no parameter servers"),)
    decisive_roles = frozenset({Role.CHIEF})  # workers wait for commands without end
    one_process = True  # the launcher starts the processes

    exposed = "MPI's processes accept any client, which could change the exchanged data, or end the job"

    def elastic(self, role: Role) -> bool:
        """Return True for workers: the host file lists the containers that exist."""
        return role is Role.WORKER

    def default_command(self, role: Role) -> str:
        """Return, for workers, the command that waits for the launcher."""
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
            "HYDRA_ENV": "none",  # each process gets its own container's variables, not the chief's
            # Otherwise the daemons of two containers on one node, unaware of each other, would bind both to the same
            # cores.
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        before = f"{_EXECUTABLE}\n{_IN_PATH}"
        serving = (_LAUNCHING,) if task.role is Role.CHIEF else ()
        return TaskEnvironment(env, files, dict(_BY_FILE), before, serving)


def _slots(job: JobSpec, cluster: ClusterSpec) -> dict[str, int]:
    """Return the slots of each container by name, in rank order: its number of GPUs, or of vcores if it has no GPU."""
    rank_of = ranks(cluster.tasks)
    there = [task for task in cluster.tasks if (task.type, task.index) in rank_of and task.host]
    there.sort(key=lambda task: rank_of[task.type, task.index])
    return {
        f"tony-{task.type}-{task.index}": job.tasks[task.type].gpus or job.tasks[task.type].vcores for task in there
    }


def _script(what: str) -> str:
    return f'#!/bin/sh\nexec {base.PYTHON_COMMAND} -m tony_mpi {what} "$@"\n'

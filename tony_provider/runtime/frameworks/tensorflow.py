"""Framework ``tensorflow``: TF_CONFIG for distribution strategies, and host lists for scripts that take arguments.

TF_CONFIG's form and task types follow ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` and
``multi_worker_util._validate_cluster_spec`` of TensorFlow 2.21. The types are chief, worker, ps and evaluator, with at
most one chief, and an evaluator need not be in the cluster.
"""

from __future__ import annotations

import json

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks.base import (
    ClusterSpec,
    Framework,
    TaskAddress,
    TaskEnvironment,
    fits_variable,
    with_file,
)
from tony_provider.runtime.jobspec.model import JobSpec, Role, in_cluster

TF_CONFIG = "TF_CONFIG"
REUSE_PORT = "TF_GRPC_REUSE_PORT"

_HOSTS = {  # the roles of TF_CONFIG's cluster, in its order
    Role.CHIEF: contract.ENV_CHIEF_HOSTS,
    Role.WORKER: contract.ENV_WORKER_HOSTS,
    Role.PS: contract.ENV_PS_HOSTS,
}


class TensorFlow(Framework):
    """Tasks that find each other by TF_CONFIG."""

    name = "tensorflow"
    made_variables = frozenset({TF_CONFIG})

    exposed = "TensorFlow's servers accept any client, which could read and write every file of the job's user"

    def shares_ports(self, role: Role) -> bool:
        """Return True for tasks of the cluster: TF_GRPC_REUSE_PORT makes TensorFlow's server bind with SO_REUSEPORT.

        Evaluators and sidecars start other servers, or none.
        """
        return in_cluster(role)

    def elastic(self, role: Role) -> bool:
        """Return True for workers: a strategy uses the workers in TF_CONFIG.

        Parameter servers cannot be left out, because each holds part of the variables.
        """
        return role is Role.WORKER

    def several_processes(self, role: Role) -> bool:
        """Return True for workers: each process is a TensorFlow worker. TensorFlow accepts at most one chief."""
        return role is Role.WORKER

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        if task.role is Role.SIDECAR:
            return TaskEnvironment({})
        env: dict[str, str] = {}
        hosts = _hosts(cluster)
        # TensorFlow knows only its four task types. So types are grouped by role, and indices continue from one type to
        # the next. If each type is named like its role, this changes neither types nor indices.
        tf_type = task.role.value
        tf_index = _of_role(cluster, task.role).index(task)
        if self.shares_ports(task.role):
            env[REUSE_PORT] = "true"
        env[contract.ENV_TF_TASK_TYPE] = tf_type
        env[contract.ENV_TF_TASK_INDEX] = str(tf_index)
        for role, variable in _HOSTS.items():
            joined = ",".join(hosts.get(role.value, []))
            if fits_variable(variable, joined):
                env[variable] = joined
        tf_config = json.dumps({"cluster": hosts, "task": {"type": tf_type, "index": tf_index}}, separators=(",", ":"))
        return TaskEnvironment(env) + with_file(
            TF_CONFIG, tf_config, contract.ENV_TF_CONFIG_FILE, contract.TF_CONFIG_FILE
        )


def _of_role(cluster: ClusterSpec, role: Role) -> list[TaskAddress]:
    return [task for task in cluster.tasks if task.role is role]


def _hosts(cluster: ClusterSpec) -> dict[str, list[str]]:
    by_role = {role.value: [task.main for task in _of_role(cluster, role)] for role in _HOSTS}
    return {role: addresses for role, addresses in by_role.items() if addresses}

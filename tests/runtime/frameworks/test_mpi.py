"""The framework of launchers such as mpirun: what they find, and who obeys whom."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.frameworks.base import TaskEnvironment, get_framework, task_environment
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job


def mpi_job(**tasks: Any) -> JobSpec:
    chief = {"command": "mpirun tony-here ./train", "vcores": 2}
    return parse_job({"framework": "mpi", "tasks": {"worker": {"instances": 2}, "chief": chief, **tasks}})


def environment_of(job: JobSpec, task_type: str, index: int = 0) -> TaskEnvironment:
    return task_environment(job, cluster_of(job), task_type, index, directory="/there")


def test_launchers_find_the_containers_with_the_chief_s_first() -> None:
    found = environment_of(mpi_job(worker={"instances": 2, "gpus": 4}), "chief")
    assert found.files["tony-hosts"] == "tony-chief-0 slots=2\ntony-worker-0 slots=4\ntony-worker-1 slots=4\n"
    assert found.files["tony-machines"] == "tony-chief-0:2\ntony-worker-0:4\ntony-worker-1:4\n"
    for variable in ("OMPI_MCA_orte_default_hostfile", "TONY_HOSTFILE"):
        assert found.env[variable] == "/there/tony-hosts"
    assert found.env["HYDRA_HOST_FILE"] == "/there/tony-machines"
    for variable in ("OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC", "TONY_REMOTE_SHELL"):
        assert found.env[variable] == "/there/tony-rsh"


def test_containers_that_are_not_there_are_not_named() -> None:
    job = mpi_job()
    cluster = cluster_of(job)
    tasks = [
        attrs.evolve(task, host="") if (task.type, task.index) == ("worker", 0) else task for task in cluster.tasks
    ]
    found = task_environment(job, attrs.evolve(cluster, tasks=tuple(tasks)), "chief", 0)
    assert found.files["tony-hosts"] == "tony-chief-0 slots=2\ntony-worker-1 slots=1\n"


def test_every_container_waits_for_commands() -> None:
    job = mpi_job()
    assert get_framework("mpi").default_command(Role.WORKER).endswith("-m tony_mpi serve")
    [helper] = environment_of(job, "chief").helpers
    assert helper.command.endswith("-m tony_mpi serve")
    worker = environment_of(job, "worker", 1)
    assert worker.helpers == ()
    assert worker.files == environment_of(job, "chief").files  # a daemon may start those below it itself


def test_those_outside_the_cluster_find_nothing_of_it() -> None:
    found = environment_of(mpi_job(viewer={"role": "sidecar", "command": "true"}), "viewer")
    assert (found.before, found.helpers) == ("", ())
    assert [name for name in found.env if "MPI" in name or "HYDRA" in name] == []


def test_the_launcher_decides_and_all_start_again() -> None:
    framework, job = get_framework("mpi"), mpi_job()
    assert list(framework.decisive(job)) == ["chief"]
    assert {framework.scope(role) for role in (Role.CHIEF, Role.WORKER)} == {RestartScope.GANG}
    assert [role for role in Role if framework.elastic(role)] == [Role.WORKER]
    assert framework.secret_variables == {"TONY_MPI_SECRET"}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SpecError, match="mpi needs a task type chief, whose command is the launcher"):
        job_of("mpi", worker={})
    with pytest.raises(SpecError, match="mpi has no parameter servers"):
        mpi_job(ps={"command": "true"})
    with pytest.raises(SpecError, match="OMPI_MCA_plm_rsh_agent: is set by the framework"):
        mpi_job(chief={"command": "true", "env": {"OMPI_MCA_plm_rsh_agent": "ssh"}})
    with pytest.raises(SpecError, match=r"tasks.worker.processes"):
        mpi_job(worker={"processes": 2})

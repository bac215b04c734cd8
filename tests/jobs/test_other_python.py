"""Nodes with the oldest Python that the runtime supports, which is not the worker's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.jobs.pythons import OLDEST, find_python, programs_without_python
from tony_provider.cluster.interface import ApplicationState

pytestmark = pytest.mark.long

QUICK = {"tasks": {"worker": {"memory": "128MiB", "command": "python -V"}}}
WORKERS = 14


@dataclass
class Nodes:
    cluster: HadoopCluster
    path: Path  # the one folder of their PATH
    python: Path

    @property
    def link(self) -> Path:
        return self.path / f"python{OLDEST}"


@pytest.fixture(scope="module")
def nodes(start_hadoop: StartHadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster whose nodes have that Python only, and room for many small containers."""
    python = find_python()
    if python is None:
        pytest.skip(f"there is no Python {OLDEST} on this machine")
    path = programs_without_python(tmp_path_factory.mktemp("node") / "bin")
    cluster = start_hadoop(Settings(node_path=str(path), node_vcores=16))
    yield Nodes(cluster, path, python)
    cluster.stop()


@pytest.fixture
def with_python(nodes: Nodes) -> Iterator[Nodes]:
    nodes.link.symlink_to(nodes.python)
    yield nodes
    nodes.link.unlink()


@pytest.fixture
def yarn(nodes: Nodes) -> Iterator[YarnPlace]:
    place = YarnPlace(cluster=nodes.cluster)
    yield place
    place.close()


@pytest.fixture(scope="module")
def archive(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made as an administrator would."""
    output = tmp_path_factory.mktemp("runtime") / "tony-runtime.zip"
    command = ["tony", "runtime", "build", "--python", OLDEST, "--output", str(output)]
    done = subprocess.run([sys.executable, "-m", "airflow", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(output) in done.stdout
    return output


def test_sixteen_executors_all_see_the_same_cluster(with_python: Nodes, yarn: YarnPlace, archive: Path) -> None:
    say = 'echo "[$TF_CONFIG, $TONY_CLUSTER_SPEC, $TONY_PORT, ${TONY_RANK:-null}, $TONY_WORLD_SIZE]"; python -V'
    sizes = {"chief": 1, "worker": WORKERS, "evaluator": 1}
    tasks = {name: {"instances": size, "memory": "128MiB", "command": say} for name, size in sizes.items()}
    yarn.extra["runtime_archive"] = str(archive)

    job = yarn.run({"framework": "tensorflow", "port_range": "21000-21999", "tasks": tasks})

    status = job.succeeded()
    nodes = {task.name: (task.node or "").partition(":")[0] for task in status.tasks}
    assert len(nodes) == sum(sizes.values())
    assert len(set(nodes.values())) == yarn.nodes
    hosts = job.said("chief:0")[1]
    addresses = [address for each in hosts.values() for address in each]
    assert len(set(addresses)) == 1 + WORKERS
    for rank, name in enumerate(["chief:0", *(f"worker:{index}" for index in range(WORKERS)), "evaluator:0"]):
        task_type, _, index = name.partition(":")
        tf_config, spec, port, said_rank, world_size = job.said(name)
        assert spec == hosts
        assert tf_config == {"cluster": hosts, "task": {"type": task_type, "index": int(index)}}
        assert world_size == 1 + WORKERS
        assert 21000 <= port <= 21999
        if task_type != "evaluator":
            assert said_rank == rank
            assert hosts[task_type][int(index)] == f"{nodes[name]}:{port}"
        assert f"Python {OLDEST}." in job.log(name)
    assert_nothing_left(yarn, job)


def test_without_an_archive_for_it_one_line_says_what_to_do(with_python: Nodes, yarn: YarnPlace) -> None:
    job = yarn.run(QUICK)

    worker = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = f"found {with_python.link} ({OLDEST}); the runtime was built for {worker}"
    assert found in no_python(job)
    assert_nothing_left_after_cleanup(yarn, job)


def test_nodes_without_any_python(yarn: YarnPlace, archive: Path) -> None:
    yarn.extra["runtime_archive"] = str(archive)

    job = yarn.run(QUICK)

    assert f"found none; the runtime was built for {OLDEST}" in no_python(job)
    assert_nothing_left_after_cleanup(yarn, job)


def test_a_python_off_the_path_is_named_in_the_connection(nodes: Nodes, yarn: YarnPlace, archive: Path) -> None:
    yarn.extra |= {"runtime_archive": str(archive), "python": f"/no/such/python,{nodes.python}"}

    job = yarn.run(QUICK)

    job.succeeded()
    assert f"Python {OLDEST}." in job.log("worker:0")


def no_python(job: Job) -> str:
    """The one line of the diagnostics that is ours."""
    application = job.end()
    assert application.state is ApplicationState.FAILED
    # YARN itself says everything twice.
    lines = {line for line in application.diagnostics.splitlines() if "no Python on" in line}
    assert len(lines) == 1, application.diagnostics
    line = lines.pop()
    assert "suits the tony runtime" in line
    assert "airflow tony runtime build --python" in line
    assert line in job.handle.master_log()
    return line


def assert_nothing_left_after_cleanup(place: YarnPlace, job: Job) -> None:
    job.handle.clean_up()
    assert_nothing_left(place, job)

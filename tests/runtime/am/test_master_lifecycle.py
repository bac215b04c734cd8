"""Faults of the application master itself, and of what it is given."""

from __future__ import annotations

import asyncio
import sys
import zlib
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.local_resource_manager.jobs import stage
from tony_provider.runtime.am import executor_messages, gateway
from tony_provider.runtime.am.lifecycle import MasterContext, open_resource_manager, serve
from tony_provider.runtime.am.local_resource_manager import LocalResourceManager
from tony_provider.runtime.am.master import ExecutorLaunches
from tony_provider.runtime.am.resource_manager import Container, Launch, ResourceManagerError
from tony_provider.runtime.application import ContainerError
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json, load_json
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, Credentials, Token
from tony_provider.runtime.jobspec.model import ContainerRuntime, Docker, JobSpec, TaskSpec
from tony_provider.runtime.launch.launch_context import write_tokens
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage import LocalStorage

JOB = JobSpec("standalone", {"worker": TaskSpec("true", instances=2)})
DEADLINE = 60


class Faulty(LocalResourceManager):
    """Stands for a fault in our own code."""

    async def launch(self, container: Container, launch: Launch) -> None:
        raise ZeroDivisionError("a fault")


async def test_internal_fault_is_a_verdict_and_everything_is_cleaned_up(tmp_path: Path) -> None:
    staged = stage(tmp_path, JOB)
    assert staged.description.local
    context = MasterContext.of_process(staged.environment)
    manager = Faulty(staged.description, staged.description.local)
    status = await asyncio.wait_for(serve(context, LocalStorage(), manager), DEADLINE)
    await manager.close()
    assert status is FinalStatus.FAILED
    result = load_json((tmp_path / "store" / contract.RESULT_FILE).read_bytes(), JobStatus)
    assert result.state is JobState.FAILED
    assert result.failure
    assert result.failure.kind is FailureKind.INTERNAL
    assert "ZeroDivisionError: a fault" in result.failure.message
    assert not (tmp_path / "store" / contract.LAUNCH_DIR).exists()
    report = read_report(Path(staged.description.local.root))
    assert report
    assert report.final_status is FinalStatus.FAILED


async def test_places_that_a_mocked_executor_names_beside_the_application_s_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: the result named ``/etc`` as the model. A program can send what it likes as its executor."""
    convert = executor_messages.process_end
    monkeypatch.setitem(gateway._REPORTS, "exited", lambda each: attrs.evolve(convert(each), model_dir="/etc"))
    staged = stage(tmp_path, JobSpec("standalone", {"worker": TaskSpec("echo 1 > $TONY_MODEL_DIR/weights")}))
    assert staged.description.local
    context = MasterContext.of_process(staged.environment)
    manager = LocalResourceManager(staged.description, staged.description.local)
    status = await asyncio.wait_for(serve(context, LocalStorage(), manager), DEADLINE)
    await manager.close()
    assert status is FinalStatus.SUCCEEDED
    for name in (contract.RESULT_FILE, contract.STATUS_FILE):
        written = load_json((tmp_path / "store" / name).read_bytes(), JobStatus)
        assert written.model_dir is None
        said = "left out of the job's status: model_dir: '/etc' does not lie below file://"
        assert said in written.warnings[0]
        assert len(written.warnings) == 1


async def test_what_is_wrong_before_the_start_is_one_clear_line(tmp_path: Path) -> None:
    staged = stage(tmp_path, JOB)
    environment = {**staged.environment, "PYTHONPATH": str(Path(__file__).parents[3])}
    del environment[contract.ENV_NODE_HOST]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tony_provider.runtime.am",
        cwd=staged.own,
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 1
    (line,) = said.decode().splitlines()
    assert line.endswith("the application master cannot start: NM_HOST is not set")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"{}", "application_id"),
        (None, contract.SECRET_DESCRIPTION),
        (b"framework", "no framework 'caffe'"),
    ],
)
def test_description_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    staged = stage(tmp_path, JOB)
    secrets = staged.credentials.secrets
    if content == b"framework":
        content = dump_json(attrs.evolve(staged.description, job=attrs.evolve(JOB, framework="caffe")))
    del secrets[contract.SECRET_DESCRIPTION]
    if content is not None:
        secrets[contract.SECRET_DESCRIPTION] = zlib.compress(content)
    write_tokens(staged.own, staged.credentials.to_bytes())
    with pytest.raises(ContainerError, match=words):
        MasterContext.of_process(staged.environment)


@pytest.mark.parametrize("of_type", [False, True])
async def test_docker_on_the_local_cluster_is_refused(tmp_path: Path, of_type: bool) -> None:
    (name, task), *_ = JOB.tasks.items()
    own = attrs.evolve(JOB, tasks={**JOB.tasks, name: attrs.evolve(task, docker=Docker("image"))})
    staged = stage(tmp_path, own if of_type else attrs.evolve(JOB, docker=Docker("image")))
    with pytest.raises(ResourceManagerError, match="docker: the local cluster cannot run images"):
        open_resource_manager(staged.description, staged.credentials)


async def test_executors_get_no_secret_of_the_application_master(tmp_path: Path) -> None:
    """Only what they need: no key of the master, no means to make tokens for others."""
    staged = stage(tmp_path, JOB, secrets={"API_KEY": "value"})
    staged.credentials.secrets[contract.SECRET_STORE_TOKEN] = b"store"
    staged.credentials.tokens = {
        "rm": Token(b"i", b"p", AM_RM_TOKEN, ""),
        "hdfs": Token(b"i", b"p", "HDFS_DELEGATION_TOKEN", "127.0.0.1:1"),
    }
    task_key = staged.credentials.secrets[contract.SECRET_TASK_KEY]
    here = Address("127.0.0.1", 1)
    launches = ExecutorLaunches(staged.description, staged.credentials, task_key, here)
    launch = launches.launch("worker:0", 1, Container("container_1_0001_01_000002", "n:1"))
    given = Credentials.from_bytes(launch.credentials)
    assert set(given.secrets) == {
        contract.SECRET_DESCRIPTION,
        contract.SECRET_CA,
        contract.SECRET_CLIENT_CERTIFICATE,
        contract.SECRET_CLIENT_KEY,
        contract.SECRET_ADDRESS_KEY,
        contract.SECRET_JOB_KEY,
        contract.SECRET_STORE_TOKEN,
        contract.SECRET_TASK_TOKEN,
        contract.SECRET_USER_PREFIX + "API_KEY",
    }
    assert list(given.tokens) == ["hdfs"]
    assert set(launch.env) == {
        contract.ENV_AM_ADDRESS,
        contract.ENV_TASK,
        contract.ENV_TASK_ATTEMPT,
        contract.ENV_PYTHON_CANDIDATES,
    }


def test_containers_in_docker_get_the_credentials_of_registries(tmp_path: Path) -> None:
    """And no others: what runs on the node itself has no image to fetch."""
    tasks = {
        "worker": TaskSpec("true"),
        "gpu": TaskSpec("true", docker=Docker("gpu:1", oci_runtime="nvidia")),
        "plain": TaskSpec("true", docker=Docker(runtime=ContainerRuntime.NONE)),
        "runc": TaskSpec("true", docker=Docker(runtime=ContainerRuntime.RUNC)),
    }
    staged = stage(tmp_path, JobSpec("standalone", tasks, docker=Docker("cpu:1")))
    staged.credentials.tokens = {"r": Token.of_registry("registry:5000", "YWxpY2U6c2VjcmV0", "application_1_1")}
    task_key = staged.credentials.secrets[contract.SECRET_TASK_KEY]
    here = Address("127.0.0.1", 1)
    launches = ExecutorLaunches(staged.description, staged.credentials, task_key, here)
    given = {}
    for task_type in tasks:
        launch = launches.launch(f"{task_type}:0", 1, Container("container_1_0001_01_000002", "n:1"))
        environment = {name.rpartition("_")[2]: value for name, value in launch.env.items() if "RUNTIME" in name}
        given[task_type] = (environment["TYPE"], environment.get("IMAGE"), environment.get("RUNTIME"))
        assert list(Credentials.from_bytes(launch.credentials).tokens) == (
            ["r"] if given[task_type][0] == "docker" else []
        )
    assert given == {
        "worker": ("docker", "cpu:1", None),
        "gpu": ("docker", "gpu:1", "nvidia"),
        "plain": ("default", None, None),
        "runc": ("runc", "cpu:1", None),
    }

"""A container like those that YARN and the local cluster make, and a real executor process in it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.runtime.executor.master import DEADLINE
from tony_provider.runtime.application import (
    ApplicationDescription,
    GpuDealing,
    LocalAccess,
    LocalizedResource,
    packed_description,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.executor import processes
from tony_provider.runtime.hadoop.tokens import Credentials, Token
from tony_provider.runtime.jobspec.model import Duration, JobSpec, TaskSpec, Timeouts
from tony_provider.runtime.launch.launch_context import write_tokens
from tony_provider.runtime.protocol.task_identity import TaskIdentity, make_token
from tony_provider.runtime.storage import WebHdfsConfig

REPOSITORY = Path(__file__).parents[3]
APPLICATION = "application_1700000000000_0001"
CONTAINER = "container_1700000000000_0001_01_000002"
KEY = b"0123456789abcdef0123456789abcdef"
SECRET_NAME, SECRET = "STORE_PASSWORD", "tell-it-to-nobody-4711"
_numbers = itertools.count(2)


def job(command: str, **changes: object) -> JobSpec:
    tasks = {"worker": TaskSpec(command=command, instances=2)}
    given = JobSpec(framework="standalone", tasks=tasks, timeouts=Timeouts(grace=Duration(5)), secrets=[SECRET_NAME])
    return attrs.evolve(given, **changes)  # type: ignore[arg-type]


@attrs.define(eq=False)
class ContainerDirectory:
    """The files of one container below ``root``."""

    root: Path
    secrets: dict[str, bytes]
    job: JobSpec
    task: str = "worker:0"
    master_lost_after: float = 60.0
    warm_start: str | None = None
    attempt: int = 1
    token_key: bytes = KEY
    env: dict[str, str] = attrs.field(factory=dict)
    gpu_dealing: GpuDealing | None = None
    webhdfs: WebHdfsConfig | None = None
    tokens: dict[str, Token] = attrs.field(factory=dict)
    more_secrets: dict[str, bytes] = attrs.field(factory=dict)
    hadoop: dict[str, str] = attrs.field(factory=dict)
    resources: list[LocalizedResource] = attrs.field(factory=list)
    environment: dict[str, str] = attrs.field(factory=dict)  # what Airflow's side adds
    hdfs: str = ""  # directory on HDFS that is the store; without it a local one is
    id: str = attrs.field(factory=lambda: f"container_1700000000000_{os.getpid()}_01_{next(_numbers):06}")

    @property
    def directory(self) -> Path:
        return self.root / CONTAINER

    @property
    def log_dir(self) -> Path:
        return self.root / "logs"

    @property
    def application_dir(self) -> Path:
        return self.root / "store" / "app"

    @property
    def store(self) -> str:
        return self.hdfs or f"file://{self.root}/store"

    @property
    def chain_dir(self) -> str:
        return f"{self.store}/chain"

    def prepare(self) -> None:
        for directory in (self.directory, self.log_dir, self.application_dir):
            directory.mkdir(parents=True, exist_ok=True)
        description = ApplicationDescription(
            application_id=APPLICATION,
            user="somebody",
            job=self.job,
            application_dir=f"{self.store}/app",
            webhdfs=self.webhdfs,
            resources=self.resources,
            runtime=LocalizedResource(contract.RUNTIME_FILE, "file:///nowhere", 0, 0),
            local=LocalAccess(root=str(self.root), memory=4096, vcores=4),
            chain_dir=self.chain_dir,
            training="clicks-train-0",
            warm_start=self.warm_start,
            master_lost_after=self.master_lost_after,
            hadoop=self.hadoop,
            environment=self.environment,
            gpu_dealing=self.gpu_dealing,
        )
        self.more_secrets[contract.SECRET_DESCRIPTION] = packed_description(description)
        self.write_credentials()

    def write_credentials(self) -> None:
        identity = TaskIdentity(APPLICATION, self.id, self.task, self.attempt)
        handed_on = (contract.SECRET_CA, contract.SECRET_CLIENT_CERTIFICATE, contract.SECRET_CLIENT_KEY)
        credentials = Credentials(dict(self.tokens), {name: self.secrets[name] for name in handed_on})
        credentials.secrets |= self.more_secrets
        credentials.secrets[contract.SECRET_ADDRESS_KEY] = KEY
        credentials.secrets[contract.SECRET_TASK_TOKEN] = make_token(self.token_key, identity).encode()
        credentials.secrets[contract.SECRET_USER_PREFIX + SECRET_NAME] = SECRET.encode()
        write_tokens(self.directory, credentials.to_bytes())

    def environ(self, port: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "JAVA_HOME": "/usr/lib/jvm/of-the-node",
            contract.ENV_AM_ADDRESS: f"127.0.0.1:{port}",
            contract.ENV_TASK: self.task,
            contract.ENV_TASK_ATTEMPT: str(self.attempt),
            contract.ENV_CONTAINER_ID: self.id,
            contract.ENV_NODE_HOST: "127.0.0.1",
            contract.ENV_NODE_PORT: "45454",
            contract.ENV_LOCAL_DIRS: str(self.root),
            contract.ENV_LOG_DIR: str(self.log_dir),
            contract.ENV_TOKEN_FILE: str(self.directory / "container_tokens"),
            **self.env,
        }

    def stored(self, name: str) -> str:
        return (self.application_dir / name).read_text()


@attrs.define(eq=False)
class ExecutorProcess:
    process: asyncio.subprocess.Process
    container: ContainerDirectory

    @classmethod
    async def start(
        cls,
        container: ContainerDirectory,
        port: int,
        *,
        python: str = sys.executable,
        launcher: Sequence[str] = (),
    ) -> ExecutorProcess:
        """In a prepared container, and a process group of its own, as a container has one."""
        program = ["-m", "tony_provider.runtime.executor"]
        with (container.log_dir / "stdout").open("wb") as stdout, (container.log_dir / "stderr").open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(launcher or (python, *program)),
                cwd=container.directory,
                env=container.environ(port),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        return cls(process, container)

    async def wait(self) -> int:
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    @property
    def stderr(self) -> str:
        return (self.container.log_dir / "stderr").read_text()

    async def clean_up(self) -> None:
        """Whatever the test left."""
        if self.process.returncode is None:
            below = await asyncio.to_thread(processes.descendants, self.process.pid)
            processes.signal_all(signal.SIGKILL, below)
            self.process.kill()
        await self.process.wait()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: object, what: str) -> None:
    """Wait for something that nothing tells of."""
    assert callable(condition)
    for _ in range(int(DEADLINE / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {DEADLINE:g} s: {what}")

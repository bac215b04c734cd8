"""Real jobs on this machine: a real application master in a process of its own, real executors, real user processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tests import shared_runtime
from tests.runtime.history.events import events_in
from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    ResourceKind,
    packed_description,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json, load_json
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import (
    container_environment,
    container_files,
    launch_command,
    materialise,
    write_tokens,
)
from tony_provider.runtime.protocol.http_messages import stored_logs
from tony_provider.runtime.protocol.master_files import FinalReport, read_report
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import LocalStorage

_numbers = itertools.count(1)
DEADLINE = 120.0  # seconds for a job
PYTHON = "{}.{}".format(*sys.version_info[:2])


def resource(path: Path, name: str, kind: ResourceKind = ResourceKind.FILE) -> LocalizedResource:
    stat = path.stat()
    return LocalizedResource(name, path.as_uri(), stat.st_size, int(stat.st_mtime * 1000), kind)


@attrs.define(eq=False)
class LocalJob:
    """A job in a directory of its own: ``store`` is the application's directory, ``root`` the local cluster's."""

    directory: Path
    description: ApplicationDescription
    credentials: Credentials  # as submitted: each application master finds them in its container
    process: asyncio.subprocess.Process

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def root(self) -> Path:
        assert self.description.local
        return Path(self.description.local.root)

    @property
    def log(self) -> str:
        return (self.directory / "am.log").read_text()

    def task_log(self, name: str) -> str:
        """A stored log, such as worker-0.log."""
        return stored_logs(LocalStorage(), str(self.store / contract.LOGS_DIR))[name].read(0, 1 << 20).decode()

    async def end(self) -> JobStatus:
        """Its result, once the application master has ended."""
        try:
            await asyncio.wait_for(self.process.wait(), DEADLINE)
        except TimeoutError:
            self.process.kill()
            raise AssertionError(f"the job did not end:\n{self.log}") from None
        result = self.store / contract.RESULT_FILE
        assert result.exists(), self.log
        return load_json(result.read_bytes(), JobStatus)

    def report(self) -> FinalReport:
        report = read_report(self.root)
        assert report
        return report

    def kill(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def status(self) -> JobStatus | None:
        try:
            return load_json((self.store / contract.STATUS_FILE).read_bytes(), JobStatus)
        except FileNotFoundError:
            return None

    async def until(self, state: str) -> JobStatus:
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            status = self.status()
            if status and status.state == state:
                return status
            assert self.process.returncode is None, self.log
            await asyncio.sleep(0.05)
        raise AssertionError(f"never {state}:\n{self.log}")

    def events(self) -> list[dict[str, Any]]:
        return events_in(self.store)

    def processes(self) -> list[str]:
        """Command lines of what still runs in one of its containers."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.root) in str((entry / "cwd").readlink()):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
        return found


@attrs.frozen
class Staged:
    """A job as the Airflow side leaves it for its application master."""

    directory: Path
    description: ApplicationDescription
    credentials: Credentials
    own: Path  # the application master's container

    @property
    def environment(self) -> dict[str, str]:
        container_id = master_container(self.description.application_id, 1)
        variables = container_environment(container_id, self.own, self.directory)
        return {**variables, contract.ENV_PYTHON_CANDIDATES: sys.executable}


def master_container(application_id: str, attempt: int) -> str:
    """What its application master's container is called."""
    return f"{application_id.replace('application', 'container')}_{attempt:02d}_000001"


def stage(
    directory: Path,
    spec: JobSpec,
    *,
    files: Mapping[str, Path] | None = None,
    access: Mapping[str, int] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Staged:
    # No two have the same, whichever test process they run in: processes are found by the ids of their containers.
    application_id = f"application_{1700000000000 + os.getpid()}_{next(_numbers):04d}"
    store, root = directory / "store", directory / "cluster" / application_id
    for each in (store / contract.LAUNCH_DIR, root):
        each.mkdir(parents=True)
    runtime = shared_runtime.resource(shared_runtime.archive())
    local = LocalAccess(str(root), **{"memory": 65536, "vcores": 64, **(access or {})})
    description = ApplicationDescription(
        application_id=application_id,
        user="tester",
        job=spec,
        application_dir=store.as_uri(),
        chain_dir=(directory / "chain-0001").as_uri(),
        epoch=1,
        webhdfs=None,
        resources=[resource(path, name) for name, path in (files or {}).items()],
        runtime=runtime,
        runtime_pythons=[PYTHON],
        python=[sys.executable],
        local=local,
        labels={"dag": "tests"},
    )
    (store / contract.LAUNCH_DIR / contract.APPLICATION_FILE).write_bytes(dump_json(description))
    own = root / "am"
    materialise(own, container_files(runtime, []))
    credentials = Credentials({}, application_secrets(application_id, secrets or {}))
    credentials.secrets[contract.SECRET_DESCRIPTION] = packed_description(description)
    write_tokens(own, credentials.to_bytes())
    return Staged(directory, description, credentials, own)


async def start(
    directory: Path,
    spec: JobSpec,
    *,
    files: Mapping[str, Path] | None = None,
    access: Mapping[str, int] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> LocalJob:
    """Stage a job and start its application master, as the Airflow side does."""
    staged = stage(directory, spec, files=files, access=access, secrets=secrets)
    with (directory / "am.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *launch_command("am", staged.description.runtime, [PYTHON]),
            cwd=staged.own,
            env=staged.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return LocalJob(directory, staged.description, staged.credentials, process)

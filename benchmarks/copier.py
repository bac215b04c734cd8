"""One process that copies a directory to HDFS, as often as it is told to; `benchmarks.mirror` starts some at once.

It reads lines with who is to copy (of COPIERS), and the name of the copy. It answers with a line of JSON: the processor
time and the HTTP requests that the copy took. The mirror does what it does in a job with `checkpoint.mirror: all`: it
holds the files in a snapshot, sums each one up while it is read, writes it aside and renames it, looks whether they are
the same still, and asks for the commit, which is granted at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from benchmarks import raw_copy
from benchmarks.launchers.http_requests import count_webhdfs
from tests.files import files_below
from tests.jobs.places import USER
from tests.runtime.certificates import make_certificates
from tests.runtime.executor.containers import APPLICATION, ContainerDirectory, job
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.checkpoint.checkpoint_model import checkpoints_directory, place_of
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_uploader import CheckpointUploader, UploadTarget
from tony_provider.runtime.executor.commit_requests import CommitRequests
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.job_files import JobFiles
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.upload import AT_ONCE, SMALL, SMALL_AT_ONCE
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.frameworks.base import MAIN_PORT, ClusterSpec, TaskAddress
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import CheckpointSpec, MirrorScope, Role
from tony_provider.runtime.storage import WebHdfsConfig, uris

WEIGHTS = "weights"  # the directory that is copied, with the checkpoint's files
_MEBIBYTE = 1 << 20
_SECONDS = 600.0  # for one copy


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--namenode", required=True, help="its web address")
    parser.add_argument("--place", required=True, type=Path, help="a directory of this machine, for its files")
    parser.add_argument("--target", required=True, help="a path on HDFS")
    parser.add_argument("--files", required=True, type=int)
    parser.add_argument("--bytes", required=True, type=int, help="of each file")
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--hdfs", help="the command of that name")
    given = parser.parse_args()
    context = _context(given)
    _make_checkpoint(context.checkpoints.path, given.files, given.bytes)
    copiers: dict[str, Callable[[str], None]] = {who: copier(context, given) for who, copier in COPIERS.items()}
    requests = count_webhdfs()
    _say({})
    for line in sys.stdin:
        who, name = line.split()
        before, asked = time.process_time(), requests.total()
        copiers[who](name)
        _say({"cpu": time.process_time() - before, "requests": requests.total() - asked})
    context.storage.close()
    return 0


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


# -- the mirror ------------------------------------------------------------------------------------------------------


@attrs.frozen
class Mirror:
    """From the look at the directory to the grant."""

    context: ExecutorContext
    given: Namespace

    def __call__(self, name: str) -> None:
        for file in files_below(self.context.checkpoints.path):  # as if the program had saved the same again
            os.utime(self.context.checkpoints.path / file)
        asyncio.run(self._carry(name))

    async def _carry(self, name: str) -> None:
        def grant(message: tony_pb2.FromExecutor) -> None:
            answer = tony_pb2.CheckpointAnswer(request=message.uploaded.request, granted=True)
            asyncio.get_running_loop().call_soon(commit_requests.answered, answer)

        commit_requests = CommitRequests(grant)
        place = place_of(name)
        assert place is not None
        number = place.save
        workers = [TaskAddress("worker", rank, Role.WORKER, "127.0.0.1", {MAIN_PORT: 20000}) for rank in range(8)]
        uploader = CheckpointUploader(self.context, Order(number, ClusterSpec(number, tuple(workers))), commit_requests)
        checkpoint = await uploader.in_thread(self.context.checkpoints.newest, None, True)
        assert checkpoint is not None
        assert len(checkpoint.files) >= self.given.files, checkpoint
        chain = checkpoints_directory(self.context.container.description.chain_dir)
        trouble = await uploader.carry(checkpoint, UploadTarget(number, uris.join(chain, name)))
        uploader.close()
        if trouble is not None:
            raise RuntimeError(trouble.text)


def _context(given: Namespace) -> ExecutorContext:
    given.place.mkdir()
    directory = ContainerDirectory(
        given.place,
        make_certificates(APPLICATION),
        job("true", checkpoint=CheckpointSpec(mirror=MirrorScope.ALL)),
        task=f"worker:{given.rank}",
        webhdfs=WebHdfsConfig([given.namenode], user=USER),
        hdfs=f"hdfs://{given.target}",
    )
    directory.prepare()
    container = ExecutorContainer.of_process(directory.environ(1), directory.directory)
    workspace = Workspace(container.directory)
    workspace.root.mkdir()
    workspace.prepare()
    storage = open_application_store(container.description, container.secrets)
    return ExecutorContext(
        container=container,
        workspace=workspace,
        ports=HeldPorts((), container.job.port_range, share=False),
        output=Output.of(container.log_dir, workspace.root),
        storage=storage,
        checkpoints=CheckpointDirectory(container, workspace, storage),
        files=JobFiles(container.directory, ()),
    )


def _make_checkpoint(directory: Path, count: int, size: int) -> None:
    """With the manifest that makes its files one."""
    (directory / WEIGHTS).mkdir()
    block = os.urandom(min(size, _MEBIBYTE))
    names = [f"{WEIGHTS}/{number:05d}" for number in range(count)]
    for name in names:
        with (directory / name).open("wb") as stream:
            for _ in range(size // len(block)):
                stream.write(block)
    manifest = {"step": 1, "entry": names[0], "files": [{"path": name, "size": size} for name in names]}
    (directory / "step-1.tony.json").write_text(json.dumps(manifest))


# -- others ----------------------------------------------------------------------------------------------------------


def at_once(size: int) -> int:
    """How many files of this size are copied side by side, by all who are compared."""
    return SMALL_AT_ONCE if size <= SMALL else AT_ONCE


@attrs.frozen
class Raw:
    """As many files at once as the mirror."""

    context: ExecutorContext
    given: Namespace

    def __call__(self, name: str) -> None:
        files = sorted((self.context.checkpoints.path / WEIGHTS).iterdir())
        target = f"{self.given.target}/raw-{self.given.rank}-{name}"
        raw_copy.copy(files, self.given.namenode, USER, target, at_once=at_once(self.given.bytes))


@attrs.frozen
class Put:
    """Hadoop's own command, told to copy as many files at once as the mirror; by default it copies one at a time."""

    context: ExecutorContext
    given: Namespace

    def __call__(self, name: str) -> None:
        target = f"{self.given.target}/put-{self.given.rank}-{name}"
        threads = str(at_once(self.given.bytes))
        self._run("-put", "-t", threads, str(self.context.checkpoints.path / WEIGHTS), target)

    def _run(self, *arguments: str) -> None:
        subprocess.run([self.given.hdfs, "dfs", *arguments], check=True, timeout=_SECONDS, capture_output=True)


@attrs.frozen
class PutStart(Put):
    """What its start takes: a command that only looks for a directory."""

    def __call__(self, name: str) -> None:
        self._run("-test", "-d", "/")


COPIERS: dict[str, Any] = {"mirror": Mirror, "raw": Raw, "put": Put, "put-start": PutStart}


if __name__ == "__main__":
    raise SystemExit(main())

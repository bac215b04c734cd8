"""`make bench-mirror`: a gibibyte of checkpoint by the executor's mirror, beside a raw WebHDFS copy of the same files.

Both copy the same files in the same run, as many at once, in turns. The mirror does what it does in a job: it holds the
files in a snapshot, sums each one up while it is read, writes it aside and renames it, looks whether the files are the
same still, and asks for the commit. Aim: at least 0.9 of the raw copy's speed.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks import hadoop, raw_copy
from tests.files import files_below
from tests.hadoop.cluster import HadoopCluster
from tests.runtime.certificates import make_certificates
from tests.runtime.executor.containers import APPLICATION, ContainerDirectory, job
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_uploader import CheckpointUploader
from tony_provider.runtime.executor.commit_requests import CommitRequests
from tony_provider.runtime.executor.delivered_files import DeliveredFiles
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.upload import AT_ONCE
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.frameworks.base import MAIN_PORT, ClusterSpec, TaskAddress
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import Role
from tony_provider.runtime.storage import WebHdfsConfig

USER = "alice"
FILES, FILE_MIB = 8, 128
ROUNDS = 5
AIM = 0.9
_MEBIBYTE = 1 << 20


@attrs.frozen
class Bench:
    context: ExecutorContext
    files: list[Path]
    address: str  # of the NameNode
    root: str  # path of a directory on HDFS

    def raw(self, number: int) -> float:
        """Seconds."""
        began = time.monotonic()
        raw_copy.copy(self.files, self.address, USER, f"{self.root}/raw-{number}", at_once=AT_ONCE)
        return time.monotonic() - began

    def mirror(self, number: int) -> float:
        """Seconds, from the look at the directory to the grant."""
        return asyncio.run(self._mirror(number))

    async def _mirror(self, number: int) -> float:
        def grant(message: tony_pb2.FromExecutor) -> None:
            answer = tony_pb2.CheckpointAnswer(request=message.uploaded.request, granted=True)
            asyncio.get_running_loop().call_soon(commit_requests.answered, answer)

        commit_requests = CommitRequests(grant)
        task = TaskAddress("worker", 0, Role.WORKER, "127.0.0.1", {MAIN_PORT: 20000})
        for file in files_below(self.context.checkpoints.path):  # as if the program had saved the same again
            os.utime(self.context.checkpoints.path / file)
        began = time.monotonic()
        uploader = CheckpointUploader(self.context, Order(number, ClusterSpec(number, (task,))), commit_requests)
        checkpoint = await uploader.in_thread(self.context.checkpoints.newest, None, True)
        assert checkpoint is not None
        trouble = await uploader.carry(checkpoint)
        seconds = time.monotonic() - began
        uploader.close()
        if trouble is not None:
            raise RuntimeError(trouble.text)
        return seconds

    def clear(self) -> None:
        """What was copied."""
        self.context.storage.remove(f"hdfs://{self.root}", recursive=True)


@contextmanager
def prepared(cluster: HadoopCluster) -> Iterator[Bench]:
    root = f"/tmp/bench-{uuid.uuid4().hex}"
    config = WebHdfsConfig(list(cluster.webhdfs), user=USER)
    with tempfile.TemporaryDirectory() as place:
        directory = ContainerDirectory(
            Path(place), make_certificates(APPLICATION), job("true"), webhdfs=config, hdfs=f"hdfs://{root}"
        )
        directory.prepare()
        container = ExecutorContainer.of_process(directory.environ(1), directory.directory)
        context = _context(container)
        bench = Bench(context, _checkpoint(context.checkpoints.path), cluster.webhdfs[0], root)
        try:
            yield bench
        finally:
            bench.clear()
            context.storage.close()


def _context(container: ExecutorContainer) -> ExecutorContext:
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
        delivered=DeliveredFiles(container.directory, ()),
    )


def _checkpoint(directory: Path) -> list[Path]:
    """Its files, without the manifest that makes them one."""
    block = uuid.uuid4().bytes * (_MEBIBYTE // 16)
    files = [directory / f"weights-{number}" for number in range(FILES)]
    for file in files:
        with file.open("wb") as stream:
            for _ in range(FILE_MIB):
                stream.write(block)
    size = FILE_MIB * _MEBIBYTE
    manifest = {"step": 1, "entry": files[0].name, "files": [{"path": file.name, "size": size} for file in files]}
    (directory / "step-1.tony.json").write_text(json.dumps(manifest))
    return files


def main() -> int:
    total = FILES * FILE_MIB
    print(f"{total} MiB in {FILES} files, {AT_ONCE} at once, {ROUNDS} rounds in turns, user {USER}")
    speeds: dict[str, list[float]] = {"raw WebHDFS": [], "mirror": []}
    with hadoop.cluster("mirror") as cluster, prepared(cluster) as bench:
        for number in range(1, ROUNDS + 1):
            turns = [("raw WebHDFS", bench.raw), ("mirror", bench.mirror)]
            for name, run in turns if number % 2 else reversed(turns):
                speeds[name].append(total / run(number))
                print(f"round {number}: {name:12} {speeds[name][-1]:7.1f} MiB/s", flush=True)
            bench.clear()
    middle = {name: statistics.median(each) for name, each in speeds.items()}
    ratio = middle["mirror"] / middle["raw WebHDFS"]
    for name, speed in middle.items():
        print(f"{name:12} {speed:7.1f} MiB/s (median)")
    print(f"ratio {ratio:.2f}, aim {AIM}: {'reached' if ratio >= AIM else 'MISSED'}")
    return 0 if ratio >= AIM else 1


if __name__ == "__main__":
    raise SystemExit(main())

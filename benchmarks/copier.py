"""One process that copies a directory to HDFS, as often as it is told to; `benchmarks.mirror` starts some at once.

It reads lines with who is to copy (of COPIERS), and the name of the copy. It answers with a line of JSON: the processor
time and the HTTP requests that the copy took. The mirror does what it does in a job, without the commit: it verifies
the saves, holds the files by links, packs small files, computes checksums, and checks that no file changed.
"""

from __future__ import annotations

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
from tony_provider.runtime.application import open_application_store
from tony_provider.runtime.artifacts.upload import SMALL, ArtifactUpload, Throttle
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import objects_directory
from tony_provider.runtime.common.contract import CHECKPOINTS_DIR as CHECKPOINTS
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_paths import CheckpointLink
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.start_context import ExecutorContext
from tony_provider.runtime.executor.workspace import JobFiles, Workspace
from tony_provider.runtime.jobspec.model import CheckpointSpec, MirrorScope
from tony_provider.runtime.storage import WebHdfsConfig

WEIGHTS = "weights"  # the directory that is copied, with the checkpoint's files
_MEBIBYTE = 1 << 20
_SECONDS = 600.0  # for one copy
_AT_ONCE, _SMALL_AT_ONCE = 4, 32  # files of the others; the mirror sends four objects at once


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
    context = context_of(given)
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
    """From the look at the directory to the last object."""

    context: ExecutorContext
    given: Namespace

    def __call__(self, name: str) -> None:
        directory = self.context.checkpoints
        for file in files_below(directory.path):  # as if the program had saved the same again
            os.utime(directory.path / file)
        state = directory.inspect(ended=True, succeeded=True)
        assert state.ready, state
        chain = self.context.container.description.chain_dir
        unique = f"{name[len('save-') :]}-{self.given.rank}"
        upload = ArtifactUpload(self.context.storage, objects_directory(chain), unique, Throttle(None))
        snapshot = directory.snapshot(state.version, (), upload, None)
        assert len(snapshot.uploaded.tree.entries) >= self.given.files
        directory.committed(snapshot, ResumePoint(1, f"{chain}/{CHECKPOINTS}/{name}"))


def context_of(given: Namespace) -> ExecutorContext:
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
        checkpoint_link=CheckpointLink(container.description, container.identity.task, workspace.checkpoints),
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
    return _SMALL_AT_ONCE if size <= SMALL else _AT_ONCE


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

"""The path of a task's checkpoint directory: constant, private, and of one container at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import pytest

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import REPOSITORY
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.checkpoint_paths import CheckpointLink
from tony_provider.runtime.jobspec.model import JobSpec

GO = threading.Event()
# A container of a task that holds the task's link until it is killed.
_HOLDER = """
import sys, threading
from pathlib import Path
from tests.runtime.executor.test_checkpoint_link import description
from tony_provider.runtime.executor.checkpoint_paths import CheckpointLink
top, directory = map(Path, sys.argv[1:])
print(CheckpointLink(description(), "worker:0", directory, top=top).path(threading.Event()), flush=True)
threading.Event().wait()
"""


def description(application: str = "application_1_0001", training: str = "train") -> ApplicationDescription:
    return ApplicationDescription(
        application_id=application,
        user="alice",
        job=JobSpec("standalone", {}),
        application_dir=f"hdfs://cluster/user/alice/.tony/jobs/{training}/applications/{application}",
        webhdfs=None,
        resources=[],
        runtime=LocalizedResource(contract.RUNTIME_FILE, "file:///nowhere", 0, 0),
    )


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """In the place of /tmp."""
    top = tmp_path / "tmp"
    top.mkdir()
    top.chmod(0o1777)
    return top


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    """Checkpoint directories of containers."""
    found = [tmp_path / name / "checkpoints" for name in ("container-1", "container-2")]
    for each in found:
        each.mkdir(parents=True)
    return found


def test_each_container_of_a_task_has_the_same_path(top: Path, directories: list[Path]) -> None:
    paths = []
    for number, directory in enumerate(directories):
        link = CheckpointLink(description(f"application_1_000{number}"), "worker:0", directory, top=top)
        paths.append(link.path(GO))
        assert paths[-1].resolve() == directory
        link.close()
        assert not paths[-1].parent.is_symlink()
    assert paths[0] == paths[1]
    assert [path.name for path in top.iterdir()] == ["tony-alice"]
    assert (top / "tony-alice").stat().st_mode & 0o777 == 0o700


def test_other_tasks_and_trainings_never_share_a_path(top: Path, directories: list[Path]) -> None:
    links = [
        CheckpointLink(description(training=training), task, directories[0], top=top, wait=0)
        for training in ("train", "backfill")
        for task in ("worker:0", "worker:1")
    ]
    assert len({link.path(GO) for link in links}) == 4
    for link in links:
        link.close()


def test_a_former_container_keeps_its_path_until_it_is_gone(top: Path, directories: list[Path]) -> None:
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-c", _HOLDER, str(top), str(directories[0])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environ, text=True) as former:
        assert former.stdout is not None
        path = Path(former.stdout.readline().strip())
        new = attrs.evolve(description(), application_id="application_1_0002")
        assert CheckpointLink(new, "worker:0", directories[1], top=top, wait=0).path(GO) == directories[1]
        assert path.resolve() == directories[0]
        waiting = CheckpointLink(new, "worker:0", directories[1], top=top, wait=60)
        threading.Timer(0.3, former.send_signal, [signal.SIGKILL]).start()
        assert waiting.path(GO) == path
        assert path.resolve() == directories[1]
        waiting.close()


def test_waiting_for_a_former_container_can_be_cancelled(top: Path, directories: list[Path]) -> None:
    former = CheckpointLink(description(), "worker:0", directories[0], top=top)
    former.path(GO)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        CheckpointLink(description(), "worker:0", directories[1], top=top).path(cancelled)
    former.close()


def test_links_of_killed_containers_are_removed(top: Path, directories: list[Path]) -> None:
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-c", _HOLDER, str(top), str(directories[0])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environ, text=True) as killed:
        assert killed.stdout is not None
        path = Path(killed.stdout.readline().strip())
        killed.kill()
    assert path.parent.is_symlink()
    (top / "tony-alice" / "file").touch()
    (top / "tony-alice" / "link").symlink_to("/etc")
    other = CheckpointLink(description(training="other"), "worker:1", directories[1], top=top)
    assert other.path(GO) != directories[1]
    assert not path.parent.parent.exists()
    other.close()


@pytest.mark.parametrize(
    "planted",
    [
        "link",
        "writable",
        "file",
        pytest.param("theirs", marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away")),
    ],
)
def test_a_planted_directory_is_not_used(
    top: Path, directories: list[Path], planted: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    if planted == "link":
        (top / "tony-alice").symlink_to(theirs)
    elif planted == "writable":
        theirs.rename(top / "tony-alice")
    elif planted == "theirs":
        (top / "tony-alice").mkdir(mode=0o700)
        os.chown(top / "tony-alice", 65534, 65534)
    else:
        (top / "tony-alice").write_text("")
    link = CheckpointLink(description(), "worker:0", directories[0], top=top)
    assert link.path(GO) == directories[0]
    assert "The path will differ in the next container" in caplog.text
    assert link.problem
    link.close()


@pytest.mark.parametrize("planted", ["link", "file", "full"])
def test_what_lies_in_the_place_of_a_link_is_not_followed(top: Path, directories: list[Path], planted: str) -> None:
    first = CheckpointLink(description(), "worker:0", directories[0], top=top)
    link = first.path(GO).parent
    first.close()
    link.parent.mkdir()
    if planted == "link":
        link.symlink_to("/etc")
    elif planted == "file":
        link.write_text("")
    else:
        link.mkdir()
        (link / "file").write_text("")
    second = CheckpointLink(description(), "worker:0", directories[1], top=top)
    found = second.path(GO)
    assert found.resolve() == directories[1]
    second.close()


async def test_the_processes_of_a_task_get_the_path_in_each_of_its_containers(launch: Launch, tmp_path: Path) -> None:
    seen = []
    for attempt in (1, 2):
        command = "echo $TONY_CHECKPOINT_DIR $(realpath $TONY_CHECKPOINT_DIR) >seen.part; mv seen.part seen; sleep 1000"
        running = await launch(command, attempt=attempt)
        await running.begin()
        await running.until_there("seen")
        path, real = (running.container.directory / "seen").read_text().split()
        assert real == f"{running.container.directory}/{contract.WORK_DIR}/checkpoints"
        seen.append(path)
        await running.end()
        running.container.directory.rename(tmp_path / f"former-{attempt}")
    assert seen[0] == seen[1] != real

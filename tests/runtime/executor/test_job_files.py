"""The job's files on their way into their places in a container, also when a program has changed them."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
import zipfile
from pathlib import Path

import attrs
import pytest

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.workspace import ChangedFileError, JobFiles
from tony_provider.runtime.jobspec.model import TaskSpec
from tony_provider.runtime.launch.launch_context import generated_names


def resource(name: str, content: bytes, kind: ResourceKind = ResourceKind.FILE) -> LocalizedResource:
    return LocalizedResource(name, f"file:///cache/{name}", len(content), 0, kind, hashlib.sha256(content).hexdigest())


def delivered(directory: Path, *files: tuple[LocalizedResource, bytes]) -> JobFiles:
    """Files as a node has linked them, with what is in them."""
    resources = [each for each, _ in files]
    for each, content in files:
        path = directory / generated_names(resources)[each.uri]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return JobFiles(directory, resources)


def packed(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


@pytest.fixture
def container(tmp_path: Path) -> Path:
    directory = tmp_path / "application" / "container"
    directory.mkdir(parents=True)
    return directory


def test_files_are_verified_before_the_first_start_only(container: Path) -> None:
    users = LocalizedResource("data.csv", "hdfs://there/data.csv", 4, 0)  # the user's own: nobody knows what is in it
    files = delivered(container, (resource("src/train.py", b"train"), b"train"), (users, b"1,2"))
    files.place(threading.Event())
    program = container / "src" / "train.py"
    assert (program.read_bytes(), (container / "data.csv").read_bytes()) == (b"train", b"1,2")
    program.resolve().write_bytes(b"other")
    files.place(threading.Event())
    with pytest.raises(ChangedFileError, match=r"src/other\.py differs from the submitted file"):
        delivered(container, (resource("src/other.py", b"train"), b"steal")).place(threading.Event())
    assert not (container / "src" / "other.py").exists()


def test_a_node_fetches_a_changed_file_again(container: Path) -> None:
    copy = container.parent / "filecache" / "10" / "train.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"steal")
    (container / "tony-files").mkdir()
    (container / "tony-files" / "0").symlink_to(copy)
    with pytest.raises(ChangedFileError):
        JobFiles(container, [resource("train.py", b"train")]).place(threading.Event())
    assert not copy.exists()


def test_one_file_has_several_names(container: Path) -> None:
    one = resource("a.py", b"x")
    delivered(container, (one, b"x"), (attrs.evolve(one, name="b/c.py"), b"x")).place(threading.Event())
    assert (container / "a.py").read_bytes() == (container / "b" / "c.py").read_bytes() == b"x"
    assert len(list((container / "tony-files").iterdir())) == 1


@pytest.mark.parametrize("name", ["$(touch pwned)", "`x`", 'a"b', "a\\b", "a\nb", "a b", "ü", "-rf", "a:b"])
def test_a_name_is_taken_literally(container: Path, name: str) -> None:
    delivered(container, (resource(name, b"x"), b"x")).place(threading.Event())
    assert (container / name).read_bytes() == b"x"
    assert {path.name for path in container.iterdir()} == {"tony-files", name}


def test_a_changed_archive_is_not_unpacked(container: Path) -> None:
    good, evil = packed("bin/python", b"good"), packed("bin/python", b"evil")
    with pytest.raises(ChangedFileError, match="env differs from the submitted file"):
        delivered(container, (resource("env", good, ResourceKind.ARCHIVE), evil)).place(threading.Event())
    assert [path.name for path in container.iterdir()] == ["tony-files"]
    assert [path.name for path in container.parent.iterdir()] == ["container"]


def test_containers_share_what_is_unpacked_by_a_key_of_their_application(container: Path) -> None:
    """Seen: a program made the directory of the user's next application beforehand, with an archive of its own."""
    content = packed("bin/python", b"python")
    archive = resource("env", content, ResourceKind.ARCHIVE)
    places = []
    for number, key in enumerate((b"key", b"key", b"of another application", None, None)):
        directory = container.parent / f"container_{number}"
        delivered(directory, (archive, content))
        JobFiles(directory, [archive], key).place(threading.Event())
        assert (directory / "env" / "bin" / "python").read_bytes() == b"python"
        places.append((directory / "env").resolve())
    assert places[0] == places[1]
    assert len({*places}) == 4


@pytest.mark.parametrize("withheld", [False, True])
async def test_nothing_is_shared_where_task_types_get_different_secrets(launch: Launch, withheld: bool) -> None:
    """Seen: a program unpacked its own archive in place of that of a type which gets a secret that it does not get."""
    content = packed("bin/python", b"python")
    archive = resource("env", content, ResourceKind.ARCHIVE)
    tasks = {"worker": TaskSpec(command="readlink -f env", instances=2)}
    other = {"other": TaskSpec(command="true", secrets=["OTHER"] if withheld else [])}
    key = {contract.SECRET_JOB_KEY: b"key"}
    running = await launch(job("", tasks={**tasks, **other}), resources=[archive], more_secrets=key)
    delivered(running.container.directory, (archive, content))
    await running.begin()
    await running.master.first("exited")
    shared = running.container.directory.parent / contract.UNPACKED_DIR
    assert shared.exists() is not withheld


def test_an_environment_that_the_launcher_has_unpacked_is_linked(container: Path) -> None:
    unpacked = container / "tony" / "python_env"
    unpacked.mkdir(parents=True)
    content = packed("bin/python", b"python")
    delivered(container, (resource("python_env", content, ResourceKind.ARCHIVE), content)).place(threading.Event())
    assert (container / "python_env").resolve() == unpacked
    assert list(unpacked.iterdir()) == []


def test_what_was_in_the_directory_before_the_container_is_removed(
    container: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: modules that a program put next to those of the user's next job ran there."""
    outside = container.parent / "outside"
    outside.mkdir()
    (container / "src").mkdir()
    (container / "src" / "numpy.py").touch()
    (container / "env").mkdir()
    (container / "torch.py").touch()
    (container / "more").symlink_to(outside)
    (container / "container_tokens").touch()
    (container / "tmp").mkdir()
    later = time.time() + 1000  # any user can set it
    os.utime(container / "torch.py", (later, later))
    time.sleep(0.02)  # the clock of file systems goes by ticks of the kernel
    (container / "launch_container.sh").touch()
    content = packed("bin/python", b"python")
    archive = resource("env", content, ResourceKind.ARCHIVE)
    delivered(container, (archive, content), (resource("src/train.py", b"train"), b"train")).place(threading.Event())
    own = {"container_tokens", "tmp", "launch_container.sh", "tony", "tony-files"}
    assert {path.name for path in container.iterdir()} == {*own, "env", "src"}
    assert [path.name for path in (container / "src").iterdir()] == ["train.py"]
    assert (container / "env" / "bin" / "python").read_bytes() == b"python"
    assert outside.exists()
    assert "removing torch.py, which was in the container's directory before the container started" in caplog.text


def test_a_link_that_is_in_the_way_is_not_followed(container: Path) -> None:
    (container / "env").mkdir()
    content = packed("bin/python", b"python")
    files = delivered(container, (resource("env", content, ResourceKind.ARCHIVE), content))
    with pytest.raises(FileExistsError):
        files.place(threading.Event())


def test_verifying_is_cancelled(container: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        delivered(container, (resource("train.py", b"train"), b"train")).place(cancelled)


async def test_a_changed_program_does_not_run(launch: Launch) -> None:
    running = await launch("touch ran", resources=[resource("train.py", b"train")])
    delivered(running.container.directory, (resource("train.py", b"train"), b"steal"))
    await running.begin()
    failed = await running.master.first("preparation_failed")
    assert "train.py differs from the submitted file" in failed.reason
    assert not (running.container.directory / "ran").exists()

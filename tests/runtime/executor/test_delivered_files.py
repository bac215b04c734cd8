"""Files that something has changed on their way into a container."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch
from tony_provider.runtime import container_inputs, contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.executor.delivered_files import ChangedFileError, DeliveredFiles


def resource(name: str, content: bytes, kind: ResourceKind = ResourceKind.FILE) -> LocalizedResource:
    return LocalizedResource(name, f"file:///cache/{name}", len(content), 0, kind, hashlib.sha256(content).hexdigest())


def test_files_are_checked_before_the_first_start_only(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    program = tmp_path / "src" / "train.py"
    program.write_bytes(b"train")
    users = LocalizedResource("data.csv", "hdfs://there/data.csv", 4, 0)  # the user's own: nobody knows what is in it
    files = DeliveredFiles(
        tmp_path, [resource("src/train.py", b"train"), users, resource("env", b"packed", ResourceKind.ARCHIVE)]
    )
    files.check(threading.Event())
    program.write_bytes(b"other")
    files.check(threading.Event())
    with pytest.raises(ChangedFileError, match=r"src/train\.py is not what was submitted"):
        DeliveredFiles(tmp_path, [resource("src/train.py", b"train")]).check(threading.Event())


def test_checking_is_cancelled(tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        DeliveredFiles(tmp_path, [resource("train.py", b"train")]).check(cancelled)


async def test_a_changed_program_does_not_run(launch: Launch) -> None:
    running = await launch("touch ran", resources=[resource("train.py", b"train")])
    (running.container.directory / "train.py").write_bytes(b"steal")
    await running.begin()
    failed = await running.master.first("restore_failed")
    assert "train.py is not what was submitted" in failed.reason
    assert not (running.container.directory / "ran").exists()


def test_a_description_that_was_changed_is_refused(tmp_path: Path) -> None:
    content = json.dumps({"application_id": "application_1_0001"}).encode()
    (tmp_path / contract.APPLICATION_FILE).write_bytes(content + b" ")
    submitted = {contract.SECRET_DESCRIPTION: hashlib.sha256(content).hexdigest().encode()}
    with pytest.raises(ContainerError, match="is not what was submitted"):
        container_inputs.description(tmp_path, submitted)

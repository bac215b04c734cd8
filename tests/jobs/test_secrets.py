"""A user's secret is in the user process and nowhere else: no other process, no store, no log, no answer of YARN."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace, files_below
from tests.jobs.processes import below, every_process
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.base import Storage, read_bytes, walk
from tony_provider.runtime.storage.errors import StorageNotFound

# NodeManagers' own copies, which containers may not read; gone with the application. What a container gets its executor
# removes once it has read it.
TOKEN_FILES = (".tokens", ".tokens.crc")

COMMAND = """
printf %s "$API_KEY" | sha256sum
until test -e "$GO"; do sleep 0.1; done
"""


def test_a_secret_is_found_nowhere_but_in_the_user_process(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = os.urandom(16).hex()
    go = tmp_path / "go"
    spec: dict[str, Any] = {
        "secrets": ["API_KEY"],
        "env": {"GO": str(go)},
        "tasks": {"worker": {"instances": 2, "memory": "128MiB", "command": COMMAND}},
    }

    job = place.submit(spec, secrets={"API_KEY": secret}, labels={"dag": "jobs"})
    job.until(JobState.RUNNING)
    proof = f"{hashlib.sha256(secret.encode()).hexdigest()}  -"
    for index in (0, 1):
        job.until_said(f"worker:{index}", proof)

    executors = job.executors()
    everyone = every_process()
    users = {pid for executor in executors for pid in below(executor.pid, everyone)}
    holders = {pid for pid, process in everyone.items() if _hides(process.environment, secret)}
    assert len(holders) >= 2
    assert holders <= users
    assert [process.words for process in everyone.values() if _hides(process.words.encode(), secret)] == []
    found = files_with(place, job, secret)
    assert [path for path in found if not path.name.endswith(TOKEN_FILES)] == []
    assert bool(found) == isinstance(place, YarnPlace)
    assert [path for path in found if readable_by_all(path)] == []
    assert_not_told(place, job, secret)

    go.touch()
    job.succeeded()

    assert proof in job.log("worker:0")
    assert_nothing_left(place, job)
    assert files_with(place, job, secret) == []
    assert_not_told(place, job, secret)
    assert not _hides(caplog.text.encode(), secret)


def test_a_secret_is_not_in_what_is_said_of_a_failure(place: Place) -> None:
    """Though the program prints it, as it is and as it goes into a header."""
    secret = os.urandom(16).hex()
    command = "echo key $API_KEY; printf user:%s $API_KEY | base64 >&2; no-such-program $API_KEY"

    job = place.run(
        {"secrets": ["API_KEY"], "tasks": {"worker": {"memory": "128MiB", "command": command}}},
        secrets={"API_KEY": secret},
    )

    assert "no-such-program $API_KEY" in job.failed()
    assert f"key {'*' * len(secret)}" in job.log("worker:0")
    assert_not_told(place, job, secret)


def assert_not_told(place: Place, job: Job, secret: str) -> None:
    """Not on the store, not by the cluster."""
    storage = job.hook.storage()
    entries = [entry for entry in walk(storage, job.hook.layout.root) if not entry.is_directory]
    ours = (f"{job.directory}/", f"{job.hook.layout.root}/cache/")
    names = [entry.path for entry in entries if entry.path.startswith(ours)]
    assert [name for name in names if _hides(_stored_content(storage, name), secret)] == []
    assert not _hides(repr(job.application()).encode(), secret)
    if isinstance(place, YarnPlace):
        assert [url for url, answer in _answers(place, job) if _hides(answer, secret)] == []


def _stored_content(storage: Storage, uri: str) -> bytes:
    """Return the bytes of a file, which may be temporary and gone by now, and of the logs in it."""
    try:
        data = read_bytes(storage, uri)
    except StorageNotFound:
        return b""
    if "/logs/tasks-" not in uri:
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        return b"".join([data, *map(bundle.read, bundle.namelist())])


def readable_by_all(path: Path) -> bool:
    """Whether the rights of the file and of each folder above it let everyone read it."""
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in path.parents)


def _answers(place: YarnPlace, job: Job) -> Iterator[tuple[str, bytes]]:
    """Everything that YARN tells about the application."""
    client = place.cluster.client("alice")
    rm = f"{place.cluster.rm_webapp[0]}/ws/v1/cluster/apps/{job.id}"
    urls = [rm, f"{rm}/appattempts"]
    urls += [f"http://{node.web}/ws/v1/node/containers" for node in place.cluster.state.addresses.nodemanagers]
    urls += [f"http://{node.web}/ws/v1/node/apps" for node in place.cluster.state.addresses.nodemanagers]
    for url in urls:
        yield url, client.request("GET", url)


def files_with(place: Place, job: Job, secret: str) -> list[Path]:
    """The files of the application and of the daemons that contain the secret."""
    return [path for path in _on_disk(place, job) if _hides(_content(path), secret)]


def _on_disk(place: Place, job: Job) -> list[Path]:
    """Of the application, and of the daemons."""
    folders = [*place.work_folders(job.id), *place.log_folders(job.id)]
    if isinstance(place, YarnPlace):
        folders += place.cluster.layout.logs.glob("*.log")
        folders += place.cluster.layout.data.glob("nodemanager-*/usercache/*/filecache")
    elif isinstance(place, LocalPlace):
        folders.append(place.root)
    return [*files_below(*folders), *(path for path in folders if path.is_file())]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # replaced by a newer one meanwhile
        return b""


def _hides(content: bytes, secret: str) -> bool:
    """Whether the secret is in it, as it is or in base64, wherever that begins."""
    plain = secret.encode()
    forms = [plain, *(base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3))]
    return any(form in content for form in forms)

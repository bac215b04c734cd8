"""What `airflow tony gc` does to environments that were built."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import time
from pathlib import Path

import attrs
import pytest

from tests.cli.conftest import Tony
from tests.environments import PINNED
from tests.hooks.jobs import ended, identity, job, running
from tony_provider.cluster.environments.built_environments import USED_FILE
from tony_provider.cluster.garbage import Garbage, GarbageItem
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord
from tony_provider.runtime.protocol.status import FinalStatus

DAY = 86400.0


@pytest.fixture
def old(local: TonyHook) -> Garbage:
    return local.garbage()


def build(hook: TonyHook, folder: Path, key: str) -> Path:
    """One of no packages, for the Python that runs the tests. Returns its directory."""
    record = EnvironmentRecord(
        python=f"3.{sys.version_info.minor}",
        machine=os.uname().machine,
        packages={"none": "1"},
        built_by="a test",
        built_ms=1,
    )
    inside, archive = folder / "tony-environment.json", folder / "packed.tar.gz"
    inside.write_bytes(dump_json(record))
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inside, inside.name)
    content = archive.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    archive = archive.rename(folder / f"tony-env-{sha256[:32]}.tar.gz")
    whole = attrs.evolve(record, archive=archive.name, sha256=sha256, size=len(content))
    uri = hook.built_environments().keep(key, archive, whole)
    return Path(uri.removeprefix("file://")).parent


def age(directory: Path, days: float = 40.0) -> None:
    then = time.time() - days * DAY
    for path in [*directory.rglob("*"), directory]:
        os.utime(path, (then, then))


def month_ago() -> int:
    return epoch_ms() - int(30 * DAY * 1000)


def removed(old: Garbage, item: GarbageItem) -> str:
    """Why it is still there; empty: it is not."""
    [outcome] = old.remove([item], month_ago())
    return outcome.problem


def test_one_that_nobody_has_used_goes(local: TonyHook, old: Garbage, tmp_path: Path) -> None:
    directories = [build(local, tmp_path, key) for key in ("one", "two")]
    assert old.old_items(month_ago()) == []
    age(directories[0])
    (item,) = old.old_items(month_ago())
    assert (item.uri, item.kept_because) == (directories[0].as_uri(), "")
    assert item.size > 0
    assert removed(old, item) == ""
    assert [directory.exists() for directory in directories] == [False, True]


def test_a_link_in_place_of_an_environment_is_left_alone(local: TonyHook, old: Garbage, tmp_path: Path) -> None:
    directory = build(local, tmp_path, "one")
    age(directory)
    outside = directory.rename(tmp_path / "outside")
    directory.symlink_to(outside)
    assert old.old_items(month_ago()) == []


def test_a_submission_is_a_use(local: TonyHook, old: Garbage, tmp_path: Path) -> None:
    directory = build(local, tmp_path, "one")
    age(directory)
    (item,) = old.old_items(month_ago())
    [archive] = directory.glob("tony-env-*.tar.gz")
    spec = job("python -c 'import sys; assert sys.prefix != sys.base_prefix'", python_env=archive.as_uri())
    application_id = local.submit(SubmissionRequest(spec, identity(local, "uses"))).application_id
    assert ended(local, application_id).final_status is FinalStatus.SUCCEEDED
    assert old.old_items(month_ago()) == []
    assert removed(old, item) == "a job has used it meanwhile"
    history = local.job(application_id, identity(local, "uses")).history()
    assert history.specification is not None
    content = history.specification.environments["python_env"]
    assert (content.packages, content.built) == ({"none": "1"}, True)


def test_one_that_a_live_application_uses_stays(local: TonyHook, old: Garbage, tmp_path: Path) -> None:
    directory = build(local, tmp_path, "one")
    [archive] = directory.glob("tony-env-*.tar.gz")
    which = identity(local, "lives")
    application_id = local.submit(
        SubmissionRequest(job("sleep 1000", python_env=archive.as_uri()), which)
    ).application_id
    running(local, which, application_id)
    age(directory)
    (item,) = old.old_items(month_ago())
    assert item.kept_because == f"the active {application_id} uses it"
    assert removed(old, item) == item.kept_because
    specification = Path(local.job(application_id, which).directory.removeprefix("file://"))
    (specification / "history" / "specification.json").unlink()
    unknown = f"it is unknown which environments the active {application_id} uses"
    assert old.old_items(month_ago())[0].kept_because == unknown
    local.kill(application_id, "its test is over")
    ended(local, application_id)
    assert old.old_items(month_ago())[0].kept_because == ""
    assert (directory / USED_FILE).exists()


def test_the_commands(local: TonyHook, tony: Tony, tmp_path: Path) -> None:
    """Built, found again, listed, removed."""
    file = tmp_path / "requirements.txt"
    file.write_text(f"{PINNED[0]}\n")
    built = tony("env", "build", str(file))
    assert built.code == 0, built.error
    archive = Path(built.out.strip().removeprefix("file://"))
    assert archive.exists()
    again = tony("env", "build", str(file))
    assert (again.out, "nothing was built" in again.error) == (built.out, True)
    age(archive.parent)
    listed = tony("gc")
    assert f"cache/environments/{archive.parent.name}" in listed.out
    assert "1 (" in listed.out
    assert archive.exists()
    removed = tony("gc", "--yes")
    assert removed.code == 0, removed.error
    assert "removed" in removed.out
    assert not archive.exists()


def test_what_cannot_be_built(local: TonyHook, tony: Tony, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("-e .\n")
    for arguments, said in (
        ([str(file)], "is on this machine"),
        ([str(file), "--python", "2.7"], "--python: '2.7' is not a version of Python"),
        ([str(file), "--platform", "win32"], "--platform: 'win32' is not supported"),
        ([str(tmp_path / "gone.txt")], "cannot be read"),
    ):
        found = tony("env", "build", *arguments)
        assert found.code == 1
        assert said in found.error

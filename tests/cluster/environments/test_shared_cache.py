"""Who may keep environments for all users, and what of theirs is read."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.cluster.environments.test_look import ARCHIVE, OWN, RECORD, built
from tony_provider.cluster.environments.built_environments import (
    BuiltEnvironments,
    SharedCache,
    read_environment_record,
)
from tony_provider.cluster.environments.inspection import InspectedEnvironments, inspect_environments
from tony_provider.cluster.settings import FileRoots
from tony_provider.cluster.sources import SourceFinder
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.local import LocalStorage

RECORD_HERE = attrs.evolve(RECORD, python=f"3.{max(OWN.versions)[1]}", machine=next(iter(OWN.machines)))


@attrs.define
class Owners(LocalStorage):
    """This machine's disk, on which users who are not there own things, by their paths; all others are root's."""

    owners: dict[str, str]

    def status(self, uri: str) -> FileStatus:
        found = super().status(uri)
        return attrs.evolve(found, owner=self.owners.get(found.path.removeprefix("file://"), "root"))


@attrs.frozen
class Field:
    """A shared cache with one environment, and alice, who names it."""

    folder: Path
    storage: Owners
    archive: str
    cache: SharedCache

    def look(self) -> InspectedEnvironments:
        job = parse_job({"framework": "standalone", "tasks": {"worker": {"command": "x"}}, "python_env": self.archive})
        found = SourceFinder(self.storage, f"file://{self.folder}", [], FileRoots("c", [self.folder])).find(job)
        return inspect_environments(job, found, self.storage, OWN, self.cache)


@pytest.fixture
def field(tmp_path: Path) -> Field:
    storage = Owners({})
    root = tmp_path / "shared"
    environments = BuiltEnvironments(LocalStorage(), Layout(f"file://{root}"), shared=True)
    (tmp_path / "made").mkdir()
    built(tmp_path / "made", RECORD_HERE)
    record = read_environment_record(storage, f"file://{tmp_path}/made/tony-environment.json")
    root.mkdir(mode=0o755)
    archive = environments.keep("key", tmp_path / "made" / record.archive, record)
    for directory in (root, *root.rglob("*")):
        if directory.is_dir():
            directory.chmod(0o755)
    own = Layout(f"file://{tmp_path}/staging")
    return Field(tmp_path, storage, archive, SharedCache(storage, f"file://{root}", "alice", own))


def test_an_administrators_is_taken(field: Field) -> None:
    found = field.look()
    assert found.problems == []
    assert found.contents["python_env"].shared
    archive = Path(field.archive.removeprefix("file://"))
    assert archive.stat().st_mode & 0o777 == 0o555
    assert (archive.parent / "tony-environment.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ({"shared": "alice"}, "must be an administrator's, but belongs to the job's user, alice"),
        ({"shared/cache/environments/key": "bob"}, "shared/cache/environments/key in the shared cache belongs to bob"),
        ({f"shared/cache/environments/key/{ARCHIVE}": "alice"}, "belongs to alice, the cache to root"),
    ],
)
def test_whose_it_may_not_be(field: Field, owner: dict[str, str], said: str) -> None:
    field.storage.owners = {f"{field.folder}/{path}": name for path, name in owner.items()}
    assert said in " ".join(field.look().problems)


@pytest.mark.parametrize("path", ["", "shared", "shared/cache", "shared/cache/environments/key"])
def test_where_others_may_not_write(field: Field, path: str) -> None:
    directory = field.folder / path
    before = directory.stat().st_mode & 0o777
    directory.chmod(before | 0o020)
    (problem,) = field.look().problems
    assert problem.startswith(f"python_env: users other than root can write to file://{directory}, so the shared")
    directory.chmod(before)


def test_the_content_is_read_whole_once(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Path(field.archive.removeprefix("file://"))
    status = field.storage.status(field.archive)
    field.cache.note_checked(status)
    assert field.cache.is_checked(status)
    content = archive.read_bytes()
    archive.chmod(0o700)
    archive.write_bytes(bytes(len(content)))
    assert not field.cache.is_checked(field.storage.status(field.archive))
    (problem,) = field.look().problems
    assert "has changed since it was built" in problem


def test_what_is_elsewhere_is_the_jobs_own_affair(field: Field) -> None:
    assert not field.cache.holds(f"file://{field.folder}/shared-too/x")
    assert field.cache.holds(f"file:///{field.folder}/shared/x")

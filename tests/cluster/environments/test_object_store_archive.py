"""The runtime archive for jobs with inputs or outputs on object stores."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.jobs.pythons import OWN, find_python
from tony_provider.cluster.environments import inspection
from tony_provider.cluster.environments.runtime_archive import build, worker_archive
from tony_provider.cluster.errors import StagingFailed

_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import start
sys.meta_path.insert(2, start.Runtime(sys.argv[1]))
from tony_provider.runtime.storage.object_store import ObjectStorage
ObjectStorage.open("s3://bucket/a", {"AWS_REGION": "eu-central-1"})
print(sys.modules["obstore"].__version__)
"""


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as opened:
        return set(opened.namelist())


def has_library(archive: Path) -> bool:
    with archive.open("rb") as file:
        return inspection.pythons_of_runtime(file).object_stores


def imported(python: str, interpreter: Path, archive: Path, directory: Path) -> str:
    """What an isolated Python prints after it has opened an object store with the archive's files."""
    prefix = f"cp3{python.rpartition('.')[2]}/"
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith(prefix):
                target = directory / name.removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(opened.read(name))
    command: list[str | Path] = [interpreter, "-I", "-S", "-c", _IMPORT, directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_only_jobs_with_object_stores_get_the_library(tmp_path: Path) -> None:
    small, large = worker_archive(tmp_path), worker_archive(tmp_path, object_stores=True)
    assert (has_library(small), has_library(large)) == (False, True)
    assert small.read_bytes() == worker_archive(tmp_path).read_bytes()
    added = names(large) - names(small)
    assert {Path(name).name.partition(".")[0] for name in added} == {"_obstore"}
    assert imported(OWN, Path(sys.executable), large, tmp_path / "large") == metadata.version("obstore")


def test_the_library_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name == "obstore":
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    worker_archive(tmp_path)
    with pytest.raises(StagingFailed, match="obstore is not installed on this worker"):
        worker_archive(tmp_path, object_stores=True)


@pytest.mark.parametrize("python", ["3.9", "3.10"])
def test_an_archive_for_older_pythons(tmp_path: Path, python: str) -> None:
    interpreter = find_python(python)
    if interpreter is None:
        pytest.skip(f"there is no Python {python}")
    archive = tmp_path / "runtime.zip"
    build([python], archive, object_stores=True)
    assert has_library(archive)
    assert imported(python, interpreter, archive, tmp_path / "unpacked") == {"3.9": "0.8.2", "3.10": "0.11.1"}[python]

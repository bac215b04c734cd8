"""Environments built for real: by uv and by pip, from a package index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.environments import PINNED, wheels
from tony_provider.cluster.environments.built_environments import (
    BuildFailed,
    BuildTarget,
    BuiltEnvironments,
    build_environment,
)
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord
from tony_provider.runtime.storage.local import LocalStorage

OWN = BuildTarget.of(None, None)
INSTALLERS = ["uv", pytest.param("pip", marks=pytest.mark.long)]


@pytest.fixture
def kept(tmp_path: Path) -> BuiltEnvironments:
    return BuiltEnvironments(LocalStorage(), Layout(f"file://{tmp_path}/staging"))


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    """With hashes."""
    file = tmp_path / "requirements.txt"
    hashes = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels().values()]
    file.write_text("".join(f"{pin} --hash=sha256:{each}\n" for pin, each in zip(PINNED, hashes, strict=True)))
    return file


def record_in(archive: Path) -> EnvironmentRecord:
    with tarfile.open(archive) as tar:
        content = tar.extractfile("tony-environment.json")
        assert content is not None
        return load_json(content.read(), EnvironmentRecord)


@pytest.mark.parametrize("installer", INSTALLERS)
def test_once_for_each_content(kept: BuiltEnvironments, requirements: Path, installer: str, tmp_path: Path) -> None:
    built = build_environment(kept, read_requirements(requirements), OWN, installer)
    archive = Path(built.uri.removeprefix("file://"))
    assert not built.was_there
    record = load_json((archive.parent / "tony-environment.json").read_bytes(), EnvironmentRecord)
    versions = {name.lower(): version for name, version in record.packages.items()}
    assert versions == {"cowsay": "6.1", "markupsafe": "3.0.4"}
    assert record.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert record.built_by.startswith(installer)
    assert record_in(archive).packages == record.packages
    before = archive.stat().st_mtime_ns
    requirements.write_text(f"# a remark\n{requirements.read_text()}")
    again = build_environment(kept, read_requirements(requirements), OWN, installer)
    assert (again.uri, again.was_there, archive.stat().st_mtime_ns) == (built.uri, True, before)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    look = [sys.executable, "-S", "-c", "import cowsay, markupsafe._speedups"]
    subprocess.run(look, env={"PYTHONPATH": str(tmp_path / "unpacked")}, check=True)


def test_what_was_left_half_built_is_built_again(kept: BuiltEnvironments, requirements: Path) -> None:
    built = build_environment(kept, read_requirements(requirements), OWN)
    archive = Path(built.uri.removeprefix("file://"))
    (archive.parent / "tony-environment.json").unlink()
    archive.chmod(0o700)
    archive.write_bytes(b"half")
    again = build_environment(kept, read_requirements(requirements), OWN)
    assert not again.was_there
    archive = Path(again.uri.removeprefix("file://"))
    assert archive.parent == Path(built.uri.removeprefix("file://")).parent
    assert record_in(archive).python == f"3.{sys.version_info.minor}"


@pytest.mark.parametrize("installer", INSTALLERS)
def test_for_other_nodes(kept: BuiltEnvironments, tmp_path: Path, installer: str) -> None:
    (tmp_path / "small.txt").write_text(f"{PINNED[1]}\n")
    target = BuildTarget.of((3, 12) if sys.version_info[:2] != (3, 12) else (3, 11), "manylinux_2_28_aarch64")
    built = build_environment(kept, read_requirements(tmp_path / "small.txt"), target, installer)
    with tarfile.open(built.uri.removeprefix("file://")) as tar:
        libraries = [name for name in tar.getnames() if name.endswith(".so")]
    assert libraries == [f"markupsafe/_speedups.cpython-3{target.version[1]}-aarch64-linux-gnu.so"]


@pytest.mark.parametrize("installer", INSTALLERS)
def test_other_content_than_the_hash_says(kept: BuiltEnvironments, requirements: Path, installer: str) -> None:
    requirements.write_text(f"{PINNED[0]} --hash=sha256:{'0' * 64}\n")
    with pytest.raises(BuildFailed, match=f"{installer} could not install .*requirements.txt"):
        build_environment(kept, read_requirements(requirements), OWN, installer)
    assert not Path(kept.layout.root.removeprefix("file://")).exists()


def test_there_is_no_uv_for_a_lock(kept: BuiltEnvironments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pylock.toml").write_text('lock-version = "1.0"\n')
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(BuildFailed, match=r"pylock\.toml requires uv"):
        build_environment(kept, read_requirements(tmp_path / "pylock.toml"), OWN)


def test_of_two_that_build_the_same_the_first_counts(kept: BuiltEnvironments, tmp_path: Path) -> None:
    """A job may be copying it to its nodes already, which look at its time."""
    uris = []
    for content in (b"the first", b"the second one"):
        archive = tmp_path / f"tony-env-{hashlib.sha256(content).hexdigest()[:32]}.tar.gz"
        archive.write_bytes(content)
        record = EnvironmentRecord(
            python="3.12",
            machine="x86_64",
            packages={},
            built_by="uv",
            built_ms=1,
            archive=archive.name,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
        )
        uris.append(kept.keep("key", archive, record))
    assert uris[0] == uris[1] == kept.find("key")
    kept_file = Path(uris[0].removeprefix("file://"))
    assert kept_file.read_bytes() == b"the first"
    assert len(list(kept_file.parent.glob("tony-env-*"))) == 1

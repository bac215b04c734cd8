"""Which environments are known to have no Jupyter, before anything is started."""

from __future__ import annotations

import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tony_provider.cluster.environments.inspection import packages_of_archive, packages_of_directory
from tony_provider.cluster.notebooks import missing_notebook_packages

NAMES = {"jupyter_server", "ipykernel", "old"}


@pytest.mark.parametrize(
    ("packages", "says"),
    [
        ([], "no Jupyter server (jupyterlab)"),
        (["torch"], "no Jupyter server (jupyterlab)"),
        (["jupyter_server"], "a Jupyter server and no kernel (ipykernel)"),
        (["Jupyter.Server", "ipykernel"], ""),
        (["jupyter-server", "xeus-python"], ""),
        (["jupyter-server", "bash_kernel"], ""),
    ],
)
def test_what_is_missing_is_named(packages: list[str], says: str) -> None:
    assert missing_notebook_packages(packages) == says


def environment(folder: Path, *, shares: bool = False) -> Path:
    venv.create(folder, system_site_packages=shares, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in ("jupyter_server-2.21.1.dist-info", "ipykernel-7.4.0.dist-info", "old-1.0-py3.9.egg-info"):
        (packages / name).mkdir()
        (packages / name / "METADATA").touch()
    return folder


def packed(folder: Path, kind: str) -> Path:
    archive = folder.with_name(f"packed.{kind}")
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for path in sorted(folder.rglob("*")):
                opened.write(path, path.relative_to(folder))
    else:
        with tarfile.open(archive, "w:gz" if kind == "tar.gz" else "w") as tar:
            tar.add(folder, ".")
    return archive


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_a_packed_environment_says_what_is_in_it(tmp_path: Path, kind: str) -> None:
    assert packages_of_archive(packed(environment(tmp_path / "env"), kind)) == NAMES
    assert packages_of_directory(tmp_path / "env") == NAMES


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_one_that_has_the_packages_of_another_python_too_says_nothing(tmp_path: Path, kind: str) -> None:
    assert packages_of_archive(packed(environment(tmp_path / "env", shares=True), kind)) is None
    assert packages_of_directory(tmp_path / "env") is None


@pytest.mark.parametrize("content", [b"no archive", b"\x1f\x8b\x08", b"\x1f\x8b\x08\x04\0\0\0\0\0\x03\x01"])
def test_what_is_no_environment_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(content)
    assert packages_of_archive(tmp_path / "broken.tar.gz") is None
    assert packages_of_directory(tmp_path) is None

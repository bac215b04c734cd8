from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.pythons import find_python
from tony_provider.cluster import runtime_archive
from tony_provider.cluster.archived_bytecode import bytecode
from tony_provider.cluster.archived_frameworks import ArchiveEntry
from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.runtime_archive import build, worker_archive


def airflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        return set(opened.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, airflow_db: None) -> Path:
    """For two Pythons, by the command line; it downloads."""
    output = tmp_path_factory.mktemp("runtime") / "deep" / "runtime.zip"
    done = airflow("tony", "runtime", "build", "--python", "3.9,3.12", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert f"{output}: " in done.stdout
    assert "for Python 3.9, 3.12" in done.stdout
    return output


def test_the_command_builds_for_other_pythons(built: Path) -> None:
    inside = names(built)
    assert {"launch.sh", "main.py", "lib/common/tony_provider/runtime/am/__main__.py"} <= inside
    for python in ("cp39", "cp312"):
        here = {name for name in inside if name.startswith(f"lib/{python}/")}
        assert any(name.endswith(".so") and "cygrpc" in name for name in here)
        assert any(name.endswith(".so") and "/_upb/" in name for name in here)
        packages = ("attr", "cattrs", "yaml", "grpc", "h11", "google/protobuf")
        assert {f"lib/{python}/{package}/__init__.py" for package in packages} <= here
    assert "lib/cp39/exceptiongroup/__init__.py" in inside  # needed below 3.11
    assert built.stat().st_size < 30 << 20


def test_the_archive_runs_on_the_oldest_python(built: Path, tmp_path: Path) -> None:
    python = find_python()
    if python is None:
        pytest.skip("there is no Python 3.9 on this machine")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "tony")
    _loads_all(tmp_path, python)


def _loads_all(folder: Path, python: Path) -> None:
    """The application master's program, by an archive that is unpacked in the folder's ``tony``."""
    done = subprocess.run(
        ["/bin/sh", "tony/launch.sh", "am"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TONY_PYTHON_CANDIDATES": str(python)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # All libraries are loaded by the time it misses its credentials.
    assert "HADOOP_TOKEN_FILE_LOCATION is not set" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    "version", ["3.8", *(pytest.param(each, marks=pytest.mark.long) for each in ("2.7", "3", "three"))]
)
def test_a_version_that_cannot_be(version: str) -> None:
    done = airflow("tony", "runtime", "build", "--python", version)
    assert done.returncode != 0
    assert "is not a version of Python; write 3.9 or newer" in done.stderr


@pytest.mark.long
def test_a_python_that_no_packages_are_made_for(tmp_path: Path) -> None:
    output = tmp_path / "runtime.zip"
    done = airflow(
        "tony", "runtime", "build", "--python", "3.12", "--platform", "no_such_platform", "--output", str(output)
    )
    assert done.returncode != 0
    assert "no packages for Python 3.12 on no_such_platform" in done.stderr
    assert not output.exists()


def test_a_python_without_pip_mocked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "pip" else find(name, *more))
    with pytest.raises(StagingFailed, match=r"pip downloads the packages, and .* has none"):
        build(["3.12"], tmp_path / "runtime.zip")


def test_pip_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_archive, "_DOWNLOAD_SECONDS", 0.01)
    with pytest.raises(StagingFailed, match=r"pip had no packages for Python 3.12 after 0.01 s"):
        build(["3.12"], tmp_path / "runtime.zip")
    assert not (tmp_path / "runtime.zip").exists()


def test_the_workers_own_packages_are_packed_once(tmp_path: Path) -> None:
    archive = worker_archive(tmp_path)
    made = archive.stat()
    assert worker_archive(tmp_path) == archive
    assert archive.stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]  # no temporary file
    inside = names(archive)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"lib/{python}/grpc/__init__.py" in inside
    assert not [name for name in inside if name.endswith((".pyi", ".proto")) or "/tests/" in name]
    assert not [name for name in inside if "airflow" in name]
    assert made.st_size < 14 << 20


def test_a_node_compiles_nothing_that_the_workers_python_has_compiled(tmp_path: Path) -> None:
    with zipfile.ZipFile(worker_archive(tmp_path)) as archive:
        archive.extractall(tmp_path / "tony")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tony").rglob("*")}
    _loads_all(tmp_path, Path(sys.executable))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tony").rglob("*")} == before


def test_bytecode_for_another_python_is_passed_over(tmp_path: Path) -> None:
    with zipfile.ZipFile(worker_archive(tmp_path)) as archive:
        archive.extractall(tmp_path / "tony")
    module = tmp_path / "tony/lib/common/tony_provider/runtime/am/__main__.py"
    compiled = Path(importlib.util.cache_from_source(str(module)))
    content = compiled.read_bytes()
    compiled.write_bytes(bytes([content[0] ^ 1]) + content[1:])  # another magic number, as of a Python's alpha release
    _loads_all(tmp_path, Path(sys.executable))


def test_a_python_that_is_not_on_this_machine_has_no_bytecode() -> None:
    assert bytecode("3.99", {"lib/a.py": ArchiveEntry(b"pass")}) == {}


def test_no_module_of_the_current_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, mark = tmp_path / "current", tmp_path / "ran"
    directory.mkdir()
    for name in ("pip", "warnings", "types", "contextlib", "importlib"):
        (directory / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert worker_archive(tmp_path / "worker").exists()
    with pytest.raises(StagingFailed, match=r"no packages for Python 3\.12"):
        build(["3.12"], tmp_path / "built.zip")
    assert not mark.exists()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = worker_archive(tmp_path / "one"), worker_archive(tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_the_worker_archive_is_made_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("submission never downloads")

    def compile_only(command: list[str], **more: Any) -> Any:
        return refuse() if "download" in command else run(command, **more)

    monkeypatch.setattr(subprocess, "run", compile_only)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert worker_archive(tmp_path).exists()
    with pytest.raises(AssertionError, match="never downloads"):
        build(["3.12"], tmp_path / "built.zip")

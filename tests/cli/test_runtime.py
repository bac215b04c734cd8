from __future__ import annotations

import importlib.util
import marshal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.pythons import find_python
from tests.shared_runtime import launch_words
from tony_provider.cluster.environments import runtime_archive
from tony_provider.cluster.environments.runtime_archive import ArchiveEntry, build, bytecode, worker_archive
from tony_provider.cluster.errors import StagingFailed


def airflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def names(archive: Path, python: str) -> set[str]:
    """Return the files for a Python such as ``cp312``: of its inner archive, and its compiled modules."""
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        compiled = {name.removeprefix(f"{python}/") for name in opened.namelist() if name.startswith(f"{python}/")}
        with opened.open(f"{python}/runtime.zip") as file, zipfile.ZipFile(file) as inner:
            assert inner.testzip() is None
            return compiled | set(inner.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, airflow_db: None) -> Path:
    """For two Pythons, by the command line; it downloads."""
    output = tmp_path_factory.mktemp("runtime") / "deep" / "runtime.zip"
    done = airflow("tony", "runtime", "build", "--python", "3.9", "--python", "3.12", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert f"{output}: " in done.stdout
    assert "for Python 3.9, 3.12" in done.stdout
    return output


def test_the_command_builds_for_other_pythons(built: Path) -> None:
    for python in ("cp39", "cp312"):
        here = names(built, python)
        assert any(name.endswith(".so") and "cygrpc" in name for name in here)
        assert any(name.endswith(".so") and "/_upb/" in name for name in here)
        packages = ("attr", "cattrs", "yaml", "grpc", "h11", "google/protobuf", "tony_provider/runtime/am")
        assert {"start.py", *(f"{package}/__init__.py" for package in packages)} <= here
    assert "exceptiongroup/__init__.py" in names(built, "cp39")  # needed below 3.11
    assert built.stat().st_size < 70 << 20


def test_the_archive_runs_on_the_oldest_python(built: Path, tmp_path: Path) -> None:
    python = find_python()
    if python is None:
        pytest.skip("there is no Python 3.9 on this machine")
    _loads_all(built, tmp_path, python)


def _loads_all(archive: Path, folder: Path, python: Path) -> None:
    """Run the application master's program by an archive, as a container in this folder."""
    done = subprocess.run(
        launch_words(archive, folder, "am"),
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
    done = airflow("tony", "runtime", "build", "--python", version, "--python", "3.12")
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
    with pytest.raises(StagingFailed, match=r"pip downloads the packages, but .* has no pip"):
        build(["3.12"], tmp_path / "runtime.zip")


def test_pip_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_archive, "_DOWNLOAD_SECONDS", 0.01)
    with pytest.raises(StagingFailed, match=r"pip got no packages for Python 3.12 within 0.01 s"):
        build(["3.12"], tmp_path / "runtime.zip")
    assert not (tmp_path / "runtime.zip").exists()


def test_the_workers_own_packages_are_packed_once(tmp_path: Path) -> None:
    archive = worker_archive(tmp_path)
    made = archive.stat()
    assert worker_archive(tmp_path) == archive
    assert archive.stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]  # no temporary file
    inside = names(archive, f"cp{sys.version_info.major}{sys.version_info.minor}")
    assert "grpc/__init__.py" in inside
    assert not [name for name in inside if name.endswith((".pyi", ".proto")) or "/tests/" in name]
    assert not [name for name in inside if "airflow" in name]
    assert made.st_size < 35 << 20


def test_a_node_compiles_nothing_that_the_workers_python_has_compiled(tmp_path: Path) -> None:
    archive = worker_archive(tmp_path / "cache")
    _loads_all(archive, tmp_path / "container", Path(sys.executable))
    with zipfile.ZipFile(tmp_path / "container/tony/runtime.zip") as inner:
        sources = {name for name in inner.namelist() if name.endswith(".py") and name.startswith("tony_provider/")}
        compiled = {name.removesuffix("c") for name in inner.namelist() if name.endswith(".pyc")}
    assert len(sources) > 200
    assert sources <= compiled


def test_bytecode_for_another_python_is_passed_over(tmp_path: Path) -> None:
    _loads_all(worker_archive(tmp_path / "cache"), tmp_path / "container", Path(sys.executable))
    runtime, other = tmp_path / "container/tony/runtime.zip", tmp_path / "other.zip"
    with zipfile.ZipFile(runtime) as found, zipfile.ZipFile(other, "w") as changed:
        for name in found.namelist():
            content = found.read(name)
            # Another magic number, as of a Python's alpha release.
            changed.writestr(name, bytes([content[0] ^ 1]) + content[1:] if name.endswith(".pyc") else content)
    other.replace(runtime)
    done = subprocess.run(
        [sys.executable, "-I", "-S", runtime.with_name("start.py"), "am"],
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "HADOOP_TOKEN_FILE_LOCATION is not set" in done.stderr


def test_a_python_that_is_not_on_this_machine_has_no_bytecode() -> None:
    assert bytecode("3.99", {"lib/a.py": ArchiveEntry(b"pass")}) == {}


def test_docstrings_are_left_out_where_nobody_reads_them() -> None:
    source = ArchiveEntry(b'def function():\n    "What it does."\n')
    names = ["attr/_make.py", "somebodys/framework.py", "tony_provider/runtime/sdk/tony_sdk.py"]
    python = "{}.{}".format(*sys.version_info[:2])
    kept = set()
    for name, content in bytecode(python, dict.fromkeys(names, source)).items():
        module: dict[str, Any] = {}
        exec(marshal.loads(content[16:]), module)
        kept |= {name} if module["function"].__doc__ else set()
    assert kept == {"somebodys/framework.pyc", "tony_provider/runtime/sdk/tony_sdk.pyc"}


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

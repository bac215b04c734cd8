"""launch.sh finds a Python and starts the runtime with it, or says in one line why it cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import attrs
import pytest

from tony_provider.cluster.runtime_archive import worker_archive
from tony_provider.runtime import contract, exit_codes, launch
from tony_provider.runtime.contract import WORK_DIR

VERSION = "{}.{}".format(*sys.version_info[:2])
LIBRARIES = "cp{}{}".format(*sys.version_info[:2])
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]

# What the launcher starts: tells what it sees.
_PROGRAM = """
import json, os, sys
print(json.dumps({
    "executable": sys.executable, "path": sys.path[:2], "isolated": sys.flags.isolated, "argv": sys.argv[1:],
    "pid": os.getpid(), "env": dict(os.environ),
}))
sys.exit(7)
"""


@attrs.define
class Container:
    directory: Path
    path: str = ""  # PATH

    def unpack(self, *libraries: str) -> None:
        runtime = self.directory / contract.RUNTIME_DIR
        for name in (launch.LAUNCHER, launch.MAIN):
            runtime.mkdir(exist_ok=True)
            (runtime / name).write_bytes(launch.program(name))
        for name in libraries:
            (runtime / "lib" / name).mkdir(parents=True)
        for program in ("am", "executor"):
            package = runtime / "lib" / "common" / "tony_provider" / "runtime" / program
            package.mkdir(parents=True)
            for directory in (package, package.parent, package.parent.parent):
                (directory / "__init__.py").touch()
            (package / "__main__.py").write_text(f"PROGRAM = {program!r}\n{_PROGRAM}")

    def run(self, *, shell: str = "sh", program: str = "executor", **env: str) -> subprocess.CompletedProcess[str]:
        command = [shell, "sh"] if shell == "busybox" else [shell]
        return subprocess.run(
            [*command, f"{contract.RUNTIME_DIR}/launch.sh", program],
            executable=shutil.which(shell),
            cwd=self.directory,
            env={"PATH": self.path, "HOME": "/nowhere", **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def script(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def python(self, name: str) -> Path:
        """One that suits, under a name of its own."""
        return self.script(name, f'SUITS="{name}" exec {sys.executable} "$@"')


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """Nothing on PATH but what a shell script needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mkdir", "uname"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    directory = tmp_path / "container"
    directory.mkdir()
    return Container(directory, path=str(tools))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_program_runs_with_the_archives_libraries_inside_the_container(container: Container, shell: str) -> None:
    container.unpack("cp36", LIBRARIES)
    container.python("on path/python3")
    container.path += f":{container.directory}/on path"
    done = container.run(shell=shell, PYTHONPATH="/of/the/node", TMPDIR="/of/the/node")
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    lib = container.directory / contract.RUNTIME_DIR / "lib"
    assert seen["path"] == [str(lib / "common"), str(lib / LIBRARIES)]
    assert seen["isolated"] == 1
    assert seen["argv"] == []
    work = container.directory / WORK_DIR
    assert seen["env"]["HOME"] == str(work / "home")
    assert seen["env"]["TMPDIR"] == str(work / "tmp")
    assert seen["env"]["XDG_CACHE_HOME"] == str(work / "home/.cache")
    assert (work / "home").is_dir()
    assert (work / "tmp").is_dir()


def test_the_program_is_the_process_that_was_started(container: Container) -> None:
    """So that it leads the container's process group."""
    container.unpack(LIBRARIES)
    python = container.python("bin/python3")
    process = subprocess.Popen(
        ["/bin/sh", f"{contract.RUNTIME_DIR}/launch.sh", "am"],
        cwd=container.directory,
        env={"PATH": container.path, contract.ENV_PYTHON_CANDIDATES: str(python)},
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=60)
    assert json.loads(output)["pid"] == process.pid


def test_the_order_of_candidates(container: Container) -> None:
    container.unpack(LIBRARIES)
    order = ["python_env/bin/python", "a b/first", "second", "path/python3", "path/python3.12"]
    for name in order:
        container.python(name)
    container.path += f":{container.directory}/path"
    candidates = f"/no/such:{container.directory}/a b/first:{container.directory}/second"
    chosen = []
    for name in order:
        done = container.run(**{contract.ENV_PYTHON_CANDIDATES: candidates})
        chosen.append(json.loads(done.stdout)["env"]["SUITS"])
        (container.directory / name).unlink()
    assert chosen == order


def test_candidates_are_taken_literally(container: Container) -> None:
    container.unpack(LIBRARIES)
    container.python("tony-fine")
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: "$(touch pwned):*:`touch pwned`"})
    assert done.returncode == exit_codes.NO_PYTHON
    assert not (container.directory / "pwned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_suitable_python_one_line_says_what_to_do(container: Container, shell: str) -> None:
    container.unpack("cp27", "cp314")
    old = container.script("old/python3", "echo 3.6; exit 1")  # an old one, as far as the launcher can tell
    broken = container.script("broken", "echo trouble >&2; exit 127")
    unbuilt = container.python("path/python3.11")
    container.path += f":{old.parent}:{unbuilt.parent}"
    done = container.run(shell=shell, **{contract.ENV_PYTHON_CANDIDATES: f"{broken}:{broken}"})
    assert done.returncode == exit_codes.NO_PYTHON
    assert done.stdout == ""
    assert done.stderr == (
        f"no Python on {os.uname().nodename} suits the tony runtime: found {broken} (does not run), {old} (3.6), "
        f"{unbuilt} ({VERSION}); the runtime was built for 2.7, 3.14. Name a suitable interpreter, or a runtime built "
        'for one of these by "airflow tony runtime build --python 3.9,3.12", in the connection.\n'
    )


IMAGE = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"


def test_libraries_for_another_machine_or_c_library_do_not_suit(container: Container) -> None:
    """As those of the archive do not suit a Python of Alpine's."""
    container.unpack(LIBRARIES)
    core = container.directory / contract.RUNTIME_DIR / "lib" / LIBRARIES / "grpc" / "_cython"
    core.mkdir(parents=True)
    (core / f"cygrpc.cpython-{VERSION.replace('.', '')}-riscv64-linux-musl.so").touch()
    python = container.python("path/python3")
    container.path += f":{python.parent}"
    done = container.run()
    assert done.returncode == exit_codes.NO_PYTHON
    assert f"found {python} ({VERSION} for {sys.implementation._multiarch}); the runtime" in done.stderr
    (core / f"cygrpc{EXTENSION_SUFFIXES[0]}").touch()
    assert container.run().returncode == 7


def test_in_an_image_without_a_suitable_python_one_line_names_the_image(container: Container) -> None:
    container.unpack("cp27")
    old = container.script("path/python3", "echo 3.6; exit 1")
    container.path += f":{old.parent}"
    done = container.run(**{IMAGE: "registry/tf:2"})
    assert done.returncode == exit_codes.NO_PYTHON
    assert done.stderr.startswith(
        "no Python in the image registry/tf:2 (looked for in PATH, /usr/local/bin, /usr/bin and /opt/*/bin) suits the "
        f"tony runtime: found {old} (3.6)"
    )
    assert done.stderr.endswith(
        "the runtime was built for 2.7. Put one into the image, bring one along as python_env, or name a runtime built "
        'for one of these by "airflow tony runtime build --python 3.9,3.12", in the connection.\n'
    )
    assert done.stderr.count("\n") == 1


def _in_a_view_of_its_own(command: str) -> list[str]:
    return ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", f"mount -t tmpfs none /opt && {command}"]


@pytest.mark.skipif(
    subprocess.run(_in_a_view_of_its_own("true"), capture_output=True, check=False).returncode != 0,
    reason="no mount namespace may be made here",
)
@pytest.mark.parametrize("in_image", [True, False])
def test_in_an_image_a_python_is_found_beside_path(container: Container, tmp_path: Path, in_image: bool) -> None:
    """In an /opt that only this container sees, of a version that no machine has."""
    container.unpack("cp399")
    python = container.script("conda", 'case "$*" in *main.py*) echo "chosen: $0"; exit 7 ;; *) echo 3.99 ;; esac')
    script = f"mkdir -p /opt/conda/bin && cp '{python}' /opt/conda/bin/python3 && exec sh tony/launch.sh executor"
    done = subprocess.run(
        _in_a_view_of_its_own(script),
        env={"PATH": os.defpath, **({IMAGE: "tf"} if in_image else {})},
        cwd=container.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (7 if in_image else exit_codes.NO_PYTHON), done.stderr
    assert done.stdout == ("chosen: /opt/conda/bin/python3\n" if in_image else "")


def test_no_python_at_all(container: Container) -> None:
    container.unpack("cp39")
    done = container.run()
    assert done.returncode == exit_codes.NO_PYTHON
    assert "found none; the runtime was built for 3.9. " in done.stderr


@pytest.mark.skipif(not shutil.which("python2.7") and not shutil.which("python3.6"), reason="no old Python here")
def test_a_real_old_python_is_not_taken(container: Container) -> None:
    old = shutil.which("python3.6") or shutil.which("python2.7")
    container.unpack(LIBRARIES)
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: str(old)})
    assert done.returncode == exit_codes.NO_PYTHON


def test_the_real_archive_starts_the_real_executor(container: Container, tmp_path: Path) -> None:
    with zipfile.ZipFile(worker_archive(tmp_path / "cache")) as archive:
        archive.extractall(container.directory / contract.RUNTIME_DIR)
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: sys.executable})
    assert done.returncode == exit_codes.BAD_CONTAINER
    assert done.stderr.endswith("ERROR the executor cannot start: TONY_TASK is not set\n")

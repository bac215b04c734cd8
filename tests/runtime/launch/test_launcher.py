"""The launch command finds a Python, verifies the runtime and starts it, or says in one line why it cannot."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import attrs
import pytest

from tests.jobs.pythons import find_python
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.contract import WORK_DIR
from tony_provider.runtime.launch import launch_context
from tony_provider.runtime.launch.launch_context import launch_command

VERSION = "{}.{}".format(*sys.version_info[:2])
OWN = "cp{}{}".format(*sys.version_info[:2])
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]

# What the launcher starts: it prints what it sees.
_PROGRAM = """
import json, os, sys
print(json.dumps({
    "executable": sys.executable, "program": __file__, "isolated": sys.flags.isolated, "argv": sys.argv[1:],
    "pid": os.getpid(), "env": dict(os.environ), "stdin": os.readlink("/proc/self/fd/0"),
}))
sys.exit(7)
"""


def packed(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@attrs.define
class Container:
    directory: Path
    path: str = ""  # PATH
    environment: LocalizedResource | None = None  # the job's own
    submitted: list[str] | None = None  # the launch command; None: that of the archive as it is
    stdin: int | None = None  # None: that of the test

    def bring(self, *pythons: str, **files: bytes) -> Path:
        """Bring a runtime archive for these Pythons (such as cp311), with these further files."""
        (self.directory / "main").write_text(_PROGRAM)
        parts = {"runtime.zip": b"", launch_context.START: _PROGRAM.encode()}
        return packed(
            self.archive, **{f"{python}/{name}": part for python in pythons for name, part in parts.items()}, **files
        )

    @property
    def archive(self) -> Path:
        return self.directory / contract.RUNTIME_FILE

    def words(self, program: str) -> list[str]:
        content = self.archive.read_bytes()
        with zipfile.ZipFile(self.archive) as opened:
            found = [name.split("/")[0][2:] for name in opened.namelist() if name.endswith("/runtime.zip")]
        runtime = LocalizedResource(
            "tony-runtime.zip", "file:///x", len(content), 1, sha256=hashlib.sha256(content).hexdigest()
        )
        pythons = [f"{digits[0]}.{digits[1:]}" for digits in found]
        return launch_command(program, runtime, pythons, [self.environment] if self.environment else [])

    def run(self, *, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
        called = [shell, "sh"] if shell == "busybox" else [shell]
        return subprocess.run(
            [*called, *(self.submitted or self.words("executor"))[1:]],
            executable=shutil.which(shell),
            cwd=self.directory,
            env={"PATH": self.path, "HOME": "/nowhere", **env},
            stdin=self.stdin,
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

    def clear(self) -> None:
        """Remove what the launcher has made, so that it can run again."""
        for name in (contract.RUNTIME_DIR, WORK_DIR):
            shutil.rmtree(self.directory / name)

    def python(self, name: str) -> Path:
        """One that suits, under a name of its own."""
        return self.script(name, f'SUITS="{name}" exec {sys.executable} "$@"')


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """Nothing on PATH but what a shell script needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mkdir", "uname", "sha256sum", "tar", "gzip"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    directory = tmp_path / "container"
    directory.mkdir()
    return Container(directory, path=str(tools))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_program_runs_from_the_verified_archive_inside_the_container(container: Container, shell: str) -> None:
    container.bring("cp36", OWN, **{f"{OWN}/lib/grpc/_cython/cygrpc{EXTENSION_SUFFIXES[0]}": b"compiled"})
    container.python("on path/python3")
    container.path += f":{container.directory}/on path"
    done = container.run(shell=shell, PYTHONPATH="/of/the/node", TMPDIR="/of/the/node")
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    runtime = container.directory / contract.RUNTIME_DIR
    assert seen["program"] == str(runtime / launch_context.START)
    assert seen["isolated"] == 1
    assert seen["argv"] == ["executor"]
    assert (runtime / "lib/grpc/_cython" / f"cygrpc{EXTENSION_SUFFIXES[0]}").read_bytes() == b"compiled"
    work = container.directory / WORK_DIR
    assert seen["env"]["HOME"] == str(work / "home")
    assert seen["env"]["TMPDIR"] == str(work / "tmp")
    assert seen["env"]["XDG_CACHE_HOME"] == str(work / "home/.cache")
    assert (work / "home").is_dir()
    assert (work / "tmp").is_dir()


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_of_a_changed_archive_runs(container: Container, shell: str) -> None:
    """Seen: a program rewrote the runtime that a node keeps, and the user's next master ran it with its tokens."""
    container.bring(OWN)
    container.submitted = container.words("am")
    packed(container.archive, **{f"{OWN}/{launch_context.START}": b"evil"})
    python = container.python("bin/python3")
    done = container.run(shell=shell, **{contract.ENV_PYTHON_CANDIDATES: str(python)})
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert done.stdout == ""
    assert done.stderr.startswith("the tony runtime is not what was submitted: ")
    assert done.stderr.count("\n") == 1
    assert not any((container.directory / contract.RUNTIME_DIR).iterdir())


def test_a_node_fetches_a_changed_archive_again(container: Container) -> None:
    container.bring(OWN)
    container.submitted = container.words("am")
    copy = container.directory.parent / "usercache/alice/filecache/10/tony-runtime-1.zip"
    copy.parent.mkdir(parents=True)
    packed(copy, **{f"{OWN}/{launch_context.START}": b"evil"})
    container.archive.unlink()
    container.archive.symlink_to(copy)
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: sys.executable})
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert not copy.exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("program", ["am", "executor"])
def test_nothing_runs_that_was_in_the_directory_before(container: Container, shell: str, program: str) -> None:
    """Seen: a program put a library into the directory of the user's next master, which ran it."""
    parts = {
        "runtime.zip": b"",
        "index": marshal.dumps({}),
        launch_context.START: launch_context.launch_file(launch_context.START).encode(),
    }
    packed(container.archive, **{f"{OWN}/{name}": part for name, part in parts.items()})
    library = container.directory / contract.RUNTIME_DIR / "lib" / f"tony_provider{EXTENSION_SUFFIXES[0]}"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"planted")
    (container.directory / WORK_DIR / "sdk" / "sitecustomize").mkdir(parents=True)
    (container.directory / contract.PYTHON_ENV_DIR).symlink_to(tempfile.gettempdir())
    container.submitted = container.words(program)
    container.path += f":{Path(shutil.which('rm') or '').parent}"
    done = container.run(shell=shell, **{contract.ENV_PYTHON_CANDIDATES: sys.executable})
    assert "No module named 'tony_provider'" in done.stderr
    assert not library.exists()
    assert {path.name for path in (container.directory / WORK_DIR).iterdir()} == {"home", "tmp"}
    assert not (container.directory / contract.PYTHON_ENV_DIR).is_symlink()
    assert Path(tempfile.gettempdir()).is_dir()


def test_a_directory_that_cannot_be_made_new_is_named(container: Container) -> None:
    container.bring(OWN)
    (container.directory / contract.RUNTIME_DIR).mkdir()  # and there is no rm
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: sys.executable})
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f"cannot create directories in {container.directory}, the container")


def test_a_full_disk_is_named(container: Container) -> None:
    # As good as a disk that takes nothing.
    container.bring(OWN, **{f"{OWN}/file": b"", f"{OWN}/file/below": b""})
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: sys.executable})
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert done.stderr.startswith("the tony runtime cannot be unpacked in this container: ")


def test_the_program_is_the_process_that_was_started(container: Container) -> None:
    """So that it leads the container's process group."""
    container.bring(OWN)
    python = container.python("bin/python3")
    process = subprocess.Popen(
        container.words("am"),
        cwd=container.directory,
        env={"PATH": container.path, contract.ENV_PYTHON_CANDIDATES: str(python)},
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=60)
    assert json.loads(output)["pid"] == process.pid


def test_nothing_waits_for_the_stdin_of_the_container(container: Container) -> None:
    """YARN leaves a pipe open there. An interpreter that is no Python, such as the text of a link, could read it."""
    container.bring(OWN)
    first = container.script("first", "cat >/dev/null; exit 1")
    second = container.script("second", f'read -r line && exit 1; exec {sys.executable} "$@"')
    container.stdin, written = os.pipe()
    try:
        done = container.run(**{contract.ENV_PYTHON_CANDIDATES: f"{first}:{second}"})
        assert done.returncode == 7, done.stderr
        assert json.loads(done.stdout)["stdin"] == os.devnull
    finally:
        os.close(container.stdin)
        os.close(written)


def bring_environment(container: Container, *, changed: bool = False) -> None:
    """Bring a packed environment of the job with a Python that suits."""
    container.python("env/bin/python")
    file = container.directory / contract.FILES_DIR / "0"
    file.parent.mkdir()
    with tarfile.open(file, "w:gz") as archive:
        archive.add(container.directory / "env", ".")
    sha256 = hashlib.sha256(file.read_bytes() + b"?" * changed).hexdigest()
    container.environment = LocalizedResource("python_env", "hdfs:///env", 1, 1, ResourceKind.ARCHIVE, sha256)


def test_the_order_of_candidates(container: Container) -> None:
    container.bring(OWN)
    order = ["a b/first", "second", "path/python3", "path/python3.12"]
    for name in order:
        container.python(name)
    bring_environment(container)
    container.path += f":{container.directory}/path"
    candidates = f"/no/such:{container.directory}/a b/first:{container.directory}/second"
    chosen = []
    for name in [*order, "tony"]:
        done = container.run(**{contract.ENV_PYTHON_CANDIDATES: candidates})
        chosen.append(json.loads(done.stdout)["env"]["SUITS"])
        (container.directory / name).unlink() if name != "tony" else None
        container.clear()
    assert chosen == [*order, "env/bin/python"]


def test_nothing_of_a_changed_environment_runs(container: Container) -> None:
    container.bring(OWN)
    bring_environment(container, changed=True)
    done = container.run()
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert done.stdout == ""
    assert done.stderr.startswith("python_env is not what was submitted")
    assert not any((container.directory / contract.RUNTIME_DIR).iterdir())


def test_candidates_are_taken_literally(container: Container) -> None:
    container.bring(OWN)
    container.python("tony-fine")
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: "$(touch pwned):*:`touch pwned`"})
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert not (container.directory / "pwned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_suitable_python_one_line_says_what_to_do(container: Container, shell: str) -> None:
    container.bring("cp27", "cp314")
    old = container.script("old/python3", "echo 3.6; exit 1")  # an old one, as far as the launcher can tell
    broken = container.script("broken", "echo trouble >&2; exit 127")
    unbuilt = container.python("path/python3.11")
    container.path += f":{old.parent}:{unbuilt.parent}"
    done = container.run(shell=shell, **{contract.ENV_PYTHON_CANDIDATES: f"{broken}:{broken}"})
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert done.stdout == ""
    assert done.stderr == (
        f"no Python on {os.uname().nodename} suits the tony runtime: found {broken} (does not run), {old} (3.6), "
        f"{unbuilt} ({VERSION}); the runtime was built for 2.7, 3.14. Name a suitable interpreter, or a runtime built "
        'for one of these by "airflow tony runtime build --python 3.9,3.12", in the connection.\n'
    )


IMAGE = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"


def test_libraries_for_another_machine_or_c_library_do_not_suit(container: Container) -> None:
    """As those of the archive do not suit a Python of Alpine's."""
    core = f"{OWN}/lib/grpc/_cython/cygrpc"
    container.bring(OWN, **{f"{core}.cpython-{VERSION.replace('.', '')}-riscv64-linux-musl.so": b""})
    python = container.python("path/python3")
    container.path += f":{python.parent}"
    done = container.run()
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert f"found {python} ({VERSION} for {sys.implementation._multiarch}); the runtime" in done.stderr
    container.clear()
    container.bring(OWN, **{f"{core}{EXTENSION_SUFFIXES[0]}": b""})
    assert container.run().returncode == 7


def test_in_an_image_without_a_suitable_python_one_line_names_the_image(container: Container) -> None:
    container.bring("cp27")
    old = container.script("path/python3", "echo 3.6; exit 1")
    container.path += f":{old.parent}"
    done = container.run(**{IMAGE: "registry/tf:2"})
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert done.stderr.startswith(
        "no Python in the image registry/tf:2 (looked for in PATH, /usr/local/bin, /usr/bin and /opt/*/bin) suits the "
        f"tony runtime: found {old} (3.6)"
    )
    assert done.stderr.endswith(
        "the runtime was built for 2.7. Put one into the image, bring one along as python_env, or name a runtime built "
        'for one of these by "airflow tony runtime build --python 3.9,3.12", in the connection.\n'
    )
    assert done.stderr.count("\n") == 1


def _in_a_view_of_its_own(command: str, size: str = "90%") -> list[str]:
    mount = f"mount -t tmpfs -o size={size} none /opt"
    return ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", f"{mount} && {command}"]


with_a_view_of_its_own = pytest.mark.skipif(
    subprocess.run(_in_a_view_of_its_own("true"), capture_output=True, check=False).returncode != 0,
    reason="no mount namespace may be made here",
)


@with_a_view_of_its_own
def test_a_full_disk_has_room_for_the_message_about_it(container: Container) -> None:
    """Seen: half of the runtime filled the disk, so that the container ended with 66 and without a word."""
    container.bring(OWN, **{f"{OWN}/lib/large": bytes(3 << 20)})
    container.python("python3")
    started = shlex.join(container.words("executor"))
    script = f"cd /opt && ln -s '{container.archive}' . && (exec {started}) 2>stderr; code=$?; cat stderr; exit $code"
    done = subprocess.run(
        _in_a_view_of_its_own(script, "2m"),
        env={"PATH": f"{container.directory}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert "cannot be unpacked in this container: [Errno 28] No space left on device" in done.stdout


@with_a_view_of_its_own
@pytest.mark.parametrize("in_image", [True, False])
def test_in_an_image_a_python_is_found_beside_path(container: Container, tmp_path: Path, in_image: bool) -> None:
    """In an /opt that only this container sees, of a version that no machine has."""
    container.bring("cp399")
    chosen = 'case "$3" in */start.py) echo "chosen: $0"; exit 7 ;; *) echo 3.99 ;; esac'
    python = container.script("conda", chosen)
    started = shlex.join(container.words("executor"))
    script = f"mkdir -p /opt/conda/bin && cp '{python}' /opt/conda/bin/python3 && exec {started}"
    done = subprocess.run(
        _in_a_view_of_its_own(script),
        env={"PATH": os.defpath, **({IMAGE: "tf"} if in_image else {})},
        cwd=container.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (7 if in_image else contract.EXIT_NO_PYTHON), done.stderr
    assert done.stdout == ("chosen: /opt/conda/bin/python3\n" if in_image else "")


def test_no_python_at_all(container: Container) -> None:
    container.bring("cp39")
    done = container.run()
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert "found none; the runtime was built for 3.9. " in done.stderr


@pytest.mark.parametrize("minor", [6, 8])
def test_a_real_old_python_is_named_and_not_taken(container: Container, minor: int) -> None:
    old = find_python(f"3.{minor}")
    if old is None:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    container.bring(OWN)
    done = container.run(**{contract.ENV_PYTHON_CANDIDATES: str(old)})
    assert done.returncode == contract.EXIT_NO_PYTHON
    assert f"found {old} (3.{minor}); the runtime" in done.stderr

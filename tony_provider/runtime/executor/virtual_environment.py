"""Programs that the preparation runs: their output, within limits, without what is the executor's own."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import archives, contract, helper_processes
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.python_packages import EnvironmentRecord, Version, WheelName, version_text
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.user_environment import PythonEnvError, node_environment
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.jobspec.container_content import PEX_ENDING, WHEEL_ENDING, EnvironmentKind
from tony_provider.runtime.jobspec.model import PythonEnv

PROGRAM_SECONDS = 900.0  # for one program: a PEX of several GB unpacks itself
_LOOK_SECONDS = 0.1
_MOST_SAID = 2000  # characters of what a failed program has printed


@attrs.frozen
class ProgramRunner:
    """Runs programs in a container, with these variables and no others."""

    environ: Mapping[str, str]
    cancelled: threading.Event

    def output(self, command: Sequence[str], what: str, **more: str) -> str:
        """What a program has printed, once it has ended well; ``more`` are further variables.

        Blocks. Raises PythonEnvError with what it has said, where it fails or takes too long; Cancelled; OSError.
        """
        ended, goes_on = os.pipe()  # a program that looks at its standard input ends when this process does
        try:
            with subprocess.Popen(
                command,
                env={**self.environ, **more},
                stdin=ended,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process:
                processes.claim(process.pid)
                try:
                    out, err = self._wait(process, what)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
                    process.wait()
                    processes.disclaim(process.pid)
        finally:
            os.close(ended)
            os.close(goes_on)
        if process.returncode:
            raise PythonEnvError(f"{what} cannot be used on this node: {(err.strip() or out.strip())[-_MOST_SAID:]}")
        return out

    def _wait(self, process: subprocess.Popen[str], what: str) -> tuple[str, str]:
        until = time.monotonic() + PROGRAM_SECONDS
        while time.monotonic() < until:
            if self.cancelled.is_set():
                raise Cancelled(f"{what} was cancelled")
            try:
                return process.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        raise PythonEnvError(f"{what} takes more than {PROGRAM_SECONDS:g} s")


# launcher.sh tries the same names.
_NAMES = ("python3", *(f"python3.{minor}" for minor in range(9, 16)))
_LOOK = """
import json, os, sys
packages = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
print(json.dumps({"executable": base, "version": sys.version_info[:2], "packages": packages}))
"""


@attrs.frozen
class _Said:
    """What a Python says of itself."""

    executable: str
    version: list[int]
    packages: list[str]


@attrs.frozen
class NodePython:
    """An interpreter, without the virtual environment that it may be in."""

    executable: Path
    version: Version
    packages: list[Path]  # where it finds those of the node, or of its virtual environment

    @property
    def name(self) -> str:
        """Such as ``python3.12``."""
        return "python{}.{}".format(*self.version)

    @classmethod
    def of_output(cls, printed: str) -> NodePython:
        """By the last line of what a program has printed in it. Raises CodecError."""
        said = load_json(printed.strip().rpartition("\n")[2].encode(), _Said)
        if len(said.version) < 2:
            raise CodecError(cls, (f"a version of {len(said.version)} numbers",))
        return cls(Path(said.executable), (said.version[0], said.version[1]), [Path(each) for each in said.packages])


def node_pythons(environ: Mapping[str, str], runner: ProgramRunner) -> Iterator[NodePython]:
    """The executor's own, those that the connection names, then those on PATH; each once. Blocks.

    ``environ``: the container's variables. What cannot be run is left out. Raises Cancelled, OSError.
    """
    path = runner.environ.get("PATH", os.defpath)
    named = filter(None, environ.get(contract.ENV_PYTHON_CANDIDATES, "").split(":"))
    seen: set[str] = set()
    for candidate in (sys.executable, *named, *_NAMES):
        program = shutil.which(candidate, path=path)
        if program is None or os.path.realpath(program) in seen:
            continue
        seen.add(os.path.realpath(program))
        try:
            yield NodePython.of_output(runner.output([program, "-I", "-c", _LOOK], program))
        except (PythonEnvError, CodecError):  # such as a Python 2, or no Python at all
            continue


# Run by the PEX's own interpreter, with its modules on the path: everything else than what any Python has.
_PEX_LOOK = """
import json, os, sys, sysconfig
def is_own(path):
    name = os.path.basename(path)
    known = {sysconfig.get_path(each) for each in ("stdlib", "platstdlib")}
    return path and path not in known and name not in ("lib-dynload", ".bootstrap") and not (
        name.startswith("python3") and name.endswith(".zip"))
base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
packages = [path for path in sys.path if is_own(path)]
print("\\n" + json.dumps({"executable": base, "version": sys.version_info[:2], "packages": packages}))
"""


def interpreter_path(candidates: str, path: str) -> str:
    """Where interpreters are, in the order of the launcher's candidates; what has no slash is on PATH, ``path``."""
    named = [os.path.dirname(each) or path for each in candidates.split(":") if each]  # noqa: PTH120 - of a list
    absolute = [each for each in named if each.startswith("/")]  # not the job's own environment, which the PEX is
    return os.pathsep.join(dict.fromkeys([*absolute, path]))


def unpacked_pex(pex: Path, root: Path, environ: Mapping[str, str], runner: ProgramRunner) -> NodePython:
    """The Python that a PEX runs on, with the directories below ``root`` that it has unpacked its packages to. Blocks.

    It looks for one by itself, as its own conditions say: the executor's, then where the launcher has looked, and on
    PATH. Raises PythonEnvError, Cancelled, OSError.
    """
    said = runner.output(
        [sys.executable, str(pex), "-c", _PEX_LOOK],
        f"the PEX {pex.name}",
        PATH=interpreter_path(environ.get(contract.ENV_PYTHON_CANDIDATES, ""), runner.environ.get("PATH", os.defpath)),
        PEX_ROOT=str(root),
        PEX_INTERPRETER="1",
        PEX_IGNORE_RCFILES="1",
    )
    try:
        return NodePython.of_output(said)
    except CodecError as error:
        raise PythonEnvError(f"{pex.name} is no PEX: it did not say where its packages are ({error})") from error


# Of a wheel's .data directory, what lies where: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
_PLACES = {"purelib": ".", "platlib": ".", "scripts": "bin", "data": "."}


def wheels_suit(wheels: Sequence[Path], version: Version, machine: str) -> bool:
    """Whether all are for this Python and machine."""
    names = [WheelName.parse(wheel.name) for wheel in wheels]
    return all(name is not None and name.suits_python(version) and name.suits_machine(machine) for name in names)


def unpack_wheels(wheels: Sequence[Path], directory: Path, runner: ProgramRunner) -> None:
    """Unpack them into a directory that is not there yet, within limits.

    Blocks; raises PythonEnvError, Cancelled, OSError.
    """
    directory.mkdir(parents=True)
    modules = helper_processes.helper_environment()["PYTHONPATH"]
    for wheel in wheels:
        command = helper_processes.helper_command(archives.__name__, str(wheel.resolve()), str(directory.absolute()))
        runner.output(command, wheel.name, PYTHONPATH=modules)
    for data in sorted(directory.glob("*.data")):
        for kind, place in _PLACES.items():
            if (data / kind).is_dir():
                shutil.copytree(data / kind, directory / place, dirs_exist_ok=True)
        shutil.rmtree(data)


_SHARED = ("share", "etc")  # directories beside packages that programs look for in their prefix
_ENTRY = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<object>[\w.]+)\s*(\[.*\])?", re.ASCII)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_MOST_BYTES = 1 << 20  # of entry_points.txt, and of a script

# The kernel takes 127 bytes of a first line, and containers' paths are longer; as pip writes it.
_SCRIPT = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({object}())
"""


@attrs.frozen
class VirtualEnvironment:
    """Made in ``directory``; is there once it is whole."""

    directory: Path

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def _mark(self) -> Path:
        return self.directory / ".whole"

    @property
    def is_there(self) -> bool:
        return self._mark.exists()

    def make(self, python: NodePython, own: Sequence[Path], beneath: Sequence[Path] = ()) -> None:
        """Make it, of directories with packages: ``own``, whose commands it has, before those ``beneath``.

        Blocks; raises OSError.
        """
        packages = self.directory / "lib" / python.name / "site-packages"
        for directory in (self.bin, packages):
            directory.mkdir(parents=True)
        for name in ("python", "python3", python.name):
            (self.bin / name).symlink_to(python.executable)
        version = "{}.{}".format(*python.version)
        (self.directory / "pyvenv.cfg").write_text(
            f"home = {python.executable.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
        )
        # Each with the .pth files that are in it, unlike on a line of its own.
        lines = [f"import site; site.addsitedir({str(each)!r})\n" for each in (*own, *beneath)]
        (packages / "tony-packages.pth").write_text("".join(lines))
        for directory in own:
            self._add_scripts(directory)
            self._link_shared(directory)
        self._mark.touch()

    def _add_scripts(self, packages: Path) -> None:
        for name, content in (*_entry_points(packages, self.bin / "python"), *_scripts(packages, self.bin / "python")):
            path = self.bin / name
            if not path.is_symlink() and not path.exists():
                path.write_bytes(content)
                path.chmod(0o700)

    def _link_shared(self, packages: Path) -> None:
        for name in _SHARED:
            link = self.directory / name
            if (packages / name).is_dir() and not link.is_symlink():
                link.symlink_to(packages / name)


def _entry_points(packages: Path, python: Path) -> Iterator[tuple[str, bytes]]:
    """The commands that the packages say they have."""
    for file in sorted(packages.glob("*.dist-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign] # names as they are written
        try:
            parser.read_string(file.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except configparser.Error:  # then its commands are not there, and the shell says so
            continue
        for name, entry in parser.items("console_scripts") if parser.has_section("console_scripts") else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match and _NAME.fullmatch(name):
                first = match["object"].partition(".")[0]
                text = _SCRIPT.format(
                    python=_quoted(python), module=match["module"], first=first, object=match["object"]
                )
                yield name, text.encode()


def _scripts(packages: Path, python: Path) -> Iterator[tuple[str, bytes]]:
    """The commands that are files of the packages; those in Python begin with whose Python they were made."""
    places = [packages / "bin", packages / ".prefix" / "bin"]  # of an installation; of a package in a PEX
    for file in (file for place in places if place.is_dir() for file in sorted(place.iterdir())):
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        content = file.read_bytes()
        first, _, rest = content.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            header = f"#!/bin/sh\n'''exec' {_quoted(python)} \"$0\" \"$@\"\n' '''\n"
            yield file.name, header.encode() + rest
        else:
            yield file.name, b"#!/bin/sh\nexec " + _quoted(file).encode() + b' "$@"\n'


def _quoted(path: Path) -> str:
    return "'" + os.fspath(path).replace("'", "'\\''") + "'"


def virtual_environment_bin(
    container: ExecutorContainer,
    workspace: Workspace,
    python_env: PythonEnv,
    kind: Optional[EnvironmentKind],
    files: Path,
    cancelled: threading.Event,
) -> Path:
    """The ``bin`` of the environment, which is made where it is not there yet. ``files``: what the container got.

    Blocks; raises PythonEnvError, Cancelled, and OSError when the disk is full.
    """
    made = VirtualEnvironment(workspace.python)
    if not made.is_there:
        shutil.rmtree(workspace.python, ignore_errors=True)  # of a preparation that was cut short
        _MAKERS[kind](_Making(container, workspace, python_env, files, made, _runner(container, workspace, cancelled)))
    return made.bin


@attrs.frozen
class _Making:
    """What the maker of a kind works with."""

    container: ExecutorContainer
    workspace: Workspace
    python_env: PythonEnv
    files: Path  # what the container got for it
    made: VirtualEnvironment
    runner: ProgramRunner

    def first_python(self, suits: Callable[[NodePython], bool], wanted: str) -> NodePython:
        """The first of the node's Pythons that suits. Raises PythonEnvError."""
        seen = []
        for each in node_pythons(self.container.environ, self.runner):
            if suits(each):
                return each
            seen.append(f"{each.executable} ({version_text(each.version)})")
        raise PythonEnvError(
            f"python_env {self.python_env}: it needs {wanted}, and this node ({os.uname().machine}) has "
            f"{', '.join(seen) or 'no Python'}"
        )


def _runner(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> ProgramRunner:
    environ = {
        **node_environment(container),
        "HOME": str(workspace.home),
        "TMPDIR": workspace.tmpdir,
        contract.ENV_CONTAINER: container.identity.container_id,  # what the guard knows its processes by
    }
    environ.setdefault("PATH", os.defpath)
    return ProgramRunner(environ, cancelled)


def _make_of_packages(making: _Making) -> None:
    """An archive of `airflow tony env build`: packages, for a Python that the nodes have."""
    record = making.files / contract.ENVIRONMENT_FILE
    try:
        version = load_json(record.read_bytes(), EnvironmentRecord).python_version
    except CodecError as error:
        raise PythonEnvError(f"python_env {making.python_env}: its {record.name} cannot be read: {error}") from error
    python = making.first_python(lambda each: each.version == version, f"Python {version_text(version)}")
    making.made.make(python, [making.files.resolve()])


def _make_of_pex(making: _Making) -> None:
    pex = _named(making, PEX_ENDING)[0]
    python = unpacked_pex(pex, making.workspace.root / "pex", making.container.environ, making.runner)
    making.made.make(python, python.packages)


def _make_of_wheels(making: _Making) -> None:
    """Over what the node's Python has."""
    found = _named(making, WHEEL_ENDING)
    machine = os.uname().machine
    wanted = f"a Python that suits {', '.join(wheel.name for wheel in found)}"
    python = making.first_python(lambda each: wheels_suit(found, each.version, machine), wanted)
    packages = making.workspace.root / "wheels"
    shutil.rmtree(packages, ignore_errors=True)
    unpack_wheels(found, packages, making.runner)
    making.made.make(python, [packages], python.packages)


_MAKERS: dict[object, Callable[[_Making], None]] = {
    EnvironmentKind.ARCHIVE: _make_of_packages,
    EnvironmentKind.PEX: _make_of_pex,
    EnvironmentKind.WHEELS: _make_of_wheels,
}


def _named(making: _Making, ending: str) -> Sequence[Path]:
    found = sorted(file for file in making.files.iterdir() if file.name.lower().endswith(ending))
    if not found:
        raise PythonEnvError(f"python_env {making.python_env}: there is no file {ending} in this container")
    return found

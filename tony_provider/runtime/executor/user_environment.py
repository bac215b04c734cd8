"""Environment of user processes: its variables, and virtual environments built from an archive, a PEX or wheels.

The helper programs that build an environment have a time limit, and do not get the executor's variables.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import archives, contract, helper_processes
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord, Version, WheelName, version_text
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.jobspec.container_content import (
    PEX_ENDING,
    WHEEL_ENDING,
    EnvironmentKind,
    node_directory,
    python_env_kind,
)
from tony_provider.runtime.jobspec.model import PythonEnv
from tony_provider.runtime.storage import uris

PROGRAM_SECONDS = 900.0  # time limit in seconds for one program, such as a PEX of several GB that unpacks itself
_MOST_SAID = 2000  # characters of a failed program's output that the error quotes


@attrs.frozen
class ProgramRunner:
    """Runs helper programs in a container, with only the variables in ``environ``."""

    environ: Mapping[str, str]
    cancelled: threading.Event

    def output(self, command: Sequence[str], what: str, **more: str) -> str:
        """Run a program and return its standard output. Blocks.

        ``what``: name of the program in errors. ``more``: further variables. Raises PythonEnvError if the program
        fails, with its output, or if it takes too long. Raises Cancelled, OSError.
        """
        environ = {**self.environ, **more}
        try:
            done = processes.run_program(command, environ, PROGRAM_SECONDS, self.cancelled)
        except subprocess.TimeoutExpired as error:
            raise PythonEnvError(f"{what} took more than {PROGRAM_SECONDS:g} s") from error
        out, err = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        if done.returncode:
            raise PythonEnvError(f"{what} cannot be used on this node: {(err.strip() or out.strip())[-_MOST_SAID:]}")
        return out


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
    """The JSON object that an interpreter prints about itself."""

    executable: str
    version: list[int]
    packages: list[str]


@attrs.frozen
class NodePython:
    """A Python of the node. If it runs in a virtual environment, ``executable`` is that environment's base."""

    executable: Path
    version: Version
    packages: list[Path]  # package directories on its sys.path, including those of a virtual environment or PEX

    @property
    def name(self) -> str:
        """The name of the program, such as ``python3.12``."""
        return "python{}.{}".format(*self.version)

    @classmethod
    def of_output(cls, printed: str) -> NodePython:
        """Parse the last line that a program has printed in the interpreter. Raises CodecError."""
        said = load_json(printed.strip().rpartition("\n")[2].encode(), _Said)
        if len(said.version) < 2:
            raise CodecError(cls, (f"the version has {len(said.version)} numbers instead of 2",))
        return cls(Path(said.executable), (said.version[0], said.version[1]), [Path(each) for each in said.packages])


def node_pythons(environ: Mapping[str, str], runner: ProgramRunner) -> Iterator[NodePython]:
    """Yield each Python once: the executor's, those that the connection names, then those on PATH. Blocks.

    ``environ``: the container's variables. Programs that do not run are skipped. Raises Cancelled, OSError.
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


# Program for the interpreter of a PEX. It prints sys.path without the standard library and the PEX's bootstrap code.
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
    """Return a search path with the directories of the launcher's candidates, in their order, and ``path``.

    ``candidates``: interpreters, separated by colons. A candidate without a slash stands for ``path``.
    """
    named = [os.path.dirname(each) or path for each in candidates.split(":") if each]  # noqa: PTH120 - of a list
    # A relative candidate is in the job's own environment, which is the PEX itself.
    absolute = [each for each in named if each.startswith("/")]
    return os.pathsep.join(dict.fromkeys([*absolute, path]))


def unpacked_pex(pex: Path, root: Path, environ: Mapping[str, str], runner: ProgramRunner) -> NodePython:
    """Unpack a PEX below ``root``. Return the Python that it runs on, with the package directories of the PEX. Blocks.

    The PEX selects the first interpreter that meets its constraints: the executor's, then the launcher's candidates,
    then those on PATH.
    Raises PythonEnvError, Cancelled, OSError.
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
        raise PythonEnvError(f"{pex.name} is not a PEX: it did not report its package directories ({error})") from error


# Target directories of a wheel's .data directory:
# https://packaging.python.org/en/latest/specifications/binary-distribution-format/
_PLACES = {"purelib": ".", "platlib": ".", "scripts": "bin", "data": "."}


def wheels_suit(wheels: Sequence[Path], version: Version, machine: str) -> bool:
    """Return whether all wheels are compatible with this Python version and machine architecture."""
    names = [WheelName.parse(wheel.name) for wheel in wheels]
    return all(name is not None and name.suits_python(version) and name.suits_machine(machine) for name in names)


def unpack_wheels(wheels: Sequence[Path], directory: Path, runner: ProgramRunner) -> None:
    """Unpack wheels into a new directory, each in a helper process with the limits of ``archives``.

    Blocks. Raises PythonEnvError, Cancelled, OSError.
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


_SHARED = ("share", "etc")  # directories next to the packages; programs expect them below sys.prefix
_ENTRY = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<object>[\w.]+)\s*(\[.*\])?", re.ASCII)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_MOST_BYTES = 1 << 20  # size limit in bytes of entry_points.txt, and of a script

# The kernel limits a ``#!`` line to 127 bytes, and paths in containers are longer. So /bin/sh executes the interpreter,
# as in the scripts that pip writes for long paths.
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
    """A virtual environment in ``directory``. A marker file, written last, shows that the environment is complete."""

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
        """Create the environment from directories with packages. Blocks. Raises OSError.

        The packages in ``own`` precede those in ``beneath``. Only ``own`` adds commands to ``bin``.
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
        # addsitedir also reads the .pth files in a directory, unlike a line with only its path.
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
    """Yield the name and content of a script for each console script that the packages declare."""
    for file in sorted(packages.glob("*.dist-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign] # names as they are written
        try:
            parser.read_string(file.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except configparser.Error:  # skip the file: the shell then reports its commands as missing
            continue
        for name, entry in parser.items("console_scripts") if parser.has_section("console_scripts") else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match and _NAME.fullmatch(name):
                first = match["object"].partition(".")[0]
                text = _SCRIPT.format(
                    python=shlex.quote(str(python)), module=match["module"], first=first, object=match["object"]
                )
                yield name, text.encode()


def _scripts(packages: Path, python: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each script of the packages. Python scripts get the environment's interpreter."""
    places = [packages / "bin", packages / ".prefix" / "bin"]  # scripts of an installation, and of a package in a PEX
    for file in (file for place in places if place.is_dir() for file in sorted(place.iterdir())):
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        content = file.read_bytes()
        first, _, rest = content.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            header = f"#!/bin/sh\n'''exec' {shlex.quote(str(python))} \"$0\" \"$@\"\n' '''\n"
            yield file.name, header.encode() + rest
        else:
            yield file.name, b"#!/bin/sh\nexec " + shlex.quote(str(file)).encode() + b' "$@"\n'


def virtual_environment_bin(
    container: ExecutorContainer,
    workspace: Workspace,
    python_env: PythonEnv,
    kind: Optional[EnvironmentKind],
    files: Path,
    cancelled: threading.Event,
) -> Path:
    """Return the ``bin`` directory of the environment, and create the environment if necessary.

    ``files``: the environment's files in the container. Blocks. Raises PythonEnvError, Cancelled, and OSError if the
    disk is full.
    """
    made = VirtualEnvironment(workspace.python)
    if not made.is_there:
        shutil.rmtree(workspace.python, ignore_errors=True)  # left by an interrupted preparation
        _MAKERS[kind](_Making(container, workspace, python_env, files, made, _runner(container, workspace, cancelled)))
    return made.bin


@attrs.frozen
class _Making:
    """The parameters for making an environment of one kind."""

    container: ExecutorContainer
    workspace: Workspace
    python_env: PythonEnv
    files: Path  # the environment's files in the container
    made: VirtualEnvironment
    runner: ProgramRunner

    def first_python(self, suits: Callable[[NodePython], bool], wanted: str) -> NodePython:
        """Return the node's first suitable Python. Raises PythonEnvError."""
        seen = []
        for each in node_pythons(self.container.environ, self.runner):
            if suits(each):
                return each
            seen.append(f"{each.executable} ({version_text(each.version)})")
        raise PythonEnvError(
            f"python_env {self.python_env} needs {wanted}, but this node ({os.uname().machine}) has "
            f"{', '.join(seen) or 'no Python'}"
        )


def _runner(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> ProgramRunner:
    environ = {
        **node_environment(container),
        "HOME": str(workspace.home),
        "TMPDIR": workspace.tmpdir,
        contract.ENV_CONTAINER: container.identity.container_id,  # by which the guard finds the processes
    }
    environ.setdefault("PATH", os.defpath)
    return ProgramRunner(environ, cancelled)


def _make_of_packages(making: _Making) -> None:
    """Create the environment from an archive of ``airflow tony env build``, which contains packages but no Python."""
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
    """Create the environment from wheels and the packages of the node's Python. The wheels have precedence."""
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
        raise PythonEnvError(f"python_env {making.python_env}: this container has no {ending} file")
    return found


class PythonEnvError(Exception):
    """The job's Python environment is not on this node, or cannot be used here."""


_PYTHONS = ("python3", "python")


def write_shims(directory: Path, path_of_image: Optional[str]) -> Path:
    """Write scripts for ``python`` and ``python3``, unless the image has these programs. Return ``directory``.

    ``path_of_image``: the PATH of an image, whose Pythons have precedence, or None for a plain process. Blocks. Raises
    OSError.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    of_image = {name: shutil.which(name, path=path_of_image) for name in _PYTHONS} if path_of_image is not None else {}
    target = next(filter(None, of_image.values()), sys.executable)
    for name in (each for each in _PYTHONS if not of_image.get(each)):
        shim = directory / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(target)} "$@"\n')
        shim.chmod(0o700)
    return directory


def python_bin(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> Path:
    """Return the directory with the task's ``python``.

    If the task has no Python environment, ``python`` is a script that runs the image's Python or the executor's.
    Blocks. Raises PythonEnvError, Cancelled, and OSError if the disk is full.
    """
    python_env = container.job.python_env_of(container.task_type)
    if python_env is None:
        path_of_image = None if container.image is None else container.environ.get("PATH", os.defpath)
        return write_shims(workspace.root / "bin", path_of_image)
    kind = python_env_kind(python_env)
    if kind is EnvironmentKind.DIRECTORY:
        return _bin_of(python_env, Path(node_directory(python_env)))
    unpacked = workspace.container / contract.PYTHON_ENV_DIR
    if not unpacked.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if kind is EnvironmentKind.ARCHIVE and not (unpacked / contract.ENVIRONMENT_FILE).exists():
        return _bin_of(python_env, unpacked)

    return virtual_environment_bin(container, workspace, python_env, kind, unpacked, cancelled)


def _bin_of(python_env: str, directory: Path) -> Path:
    if not directory.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if not os.access(directory / "bin" / "python", os.X_OK):
        raise PythonEnvError(f"python_env {python_env}: its bin/python is missing or cannot be run on this node")
    return directory / "bin"


_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Variables that user processes do not get. The token file contains the keys of the executor's connection to its master.
# If the job requests Hadoop, HadoopAccess writes a separate token file for user processes.
_OWN = frozenset(
    {
        contract.ENV_TOKEN_FILE,
        contract.ENV_CONTAINER_ID,  # libraries such as Spark infer from it that all variables of YARN exist
        contract.ENV_NODE_HOST,
        contract.ENV_NODE_PORT,
        contract.ENV_LOCAL_DIRS,
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "XDG_RUNTIME_DIR",
    }
)


def user_environment(
    container: ExecutorContainer,
    workspace: Workspace,
    cluster: Mapping[str, str],
    resumed: Optional[Resumed],
    python_bin: Path,
) -> dict[str, str]:
    """Return the environment variables of a user process.

    ``cluster``: the variables of the rendezvous, the framework and Hadoop. ``resumed``: the checkpoint to resume from.
    Later sources override earlier ones: the node, the workspace, Airflow's variables, the cluster, the job's ``env``,
    the task type's ``env``, the user's secrets. The TONY_* variables of the contract override all of them.
    """
    framework = get_framework(container.job.framework)
    env = {
        **node_environment(container),
        **_places(workspace),
        "PYTHONUNBUFFERED": "1",  # so that the last lines before a kill are not lost
        "PYTHONFAULTHANDLER": "1",  # so that a crash in a library prints its location
        **{name: str(workspace.debug / file) for name, file in framework.debug_files.items()},
        **container.description.environment,
        **cluster,
        **container.job.env,
        **container.spec.env,
        **container.user_secrets,
        **_contract(container, workspace, resumed, is_leader=cluster.get(contract.ENV_RANK) == "0"),
        **{name: value for name, value in cluster.items() if name.startswith(contract.OWN_ENV_PREFIX)},
    }
    env["PATH"] = os.pathsep.join([str(python_bin), env.get("PATH") or _DEFAULT_PATH])
    # Localized files are links into the node's cache. For a script, Python adds the directory of the link's target to
    # sys.path. Therefore add the container's directory, which contains the modules next to the script.
    env["PYTHONPATH"] = os.pathsep.join(
        [*filter(None, [env.get("PYTHONPATH")]), str(workspace.container), str(workspace.sdk)]
    )
    return env


def node_environment(container: ExecutorContainer) -> dict[str, str]:
    """Return the variables of the node, without those of the executor."""
    hidden = _OWN if container.job.hadoop else _OWN | {contract.ENV_TICKET}
    return {
        name: value
        for name, value in container.environ.items()
        if name not in hidden and not name.startswith(contract.OWN_ENV_PREFIX)
    }


def _places(workspace: Workspace) -> dict[str, str]:
    home = workspace.home
    return {
        "HOME": str(home),
        "TMPDIR": workspace.tmpdir,
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PWD": str(workspace.container),
    }


def _contract(
    container: ExecutorContainer, workspace: Workspace, resumed: Optional[Resumed], *, is_leader: bool
) -> dict[str, str]:
    """Return the TONY_* variables. ``is_leader``: the job publishes the exports of this process."""
    env = {
        contract.ENV_APPLICATION_ID: container.identity.application_id,
        contract.ENV_CONTAINER: container.identity.container_id,  # by which the guard finds the processes
        contract.ENV_ATTEMPT: str(container.identity.attempt),
        contract.ENV_METRICS_FILE: str(workspace.metrics_file),
        contract.ENV_MODEL_DIR: str(workspace.model),
        contract.ENV_RESULT_FILE: str(workspace.result_file),
        contract.ENV_CHECKPOINT_REQUEST: str(workspace.checkpoint_request),
        contract.ENV_TENSORBOARD_DIR: str(workspace.tensorboard),
        contract.ENV_DEBUG_DIR: str(workspace.debug),
    }
    if is_leader:
        env[contract.ENV_EXPORT_DIR] = str(workspace.exports)
        env[contract.ENV_EXPORT_REQUEST] = str(workspace.export_request)
    if container.shows_tensorboard:
        env[contract.ENV_TENSORBOARD_PATH] = container.tensorboard_path
    description = container.description
    if description.training:
        env[contract.ENV_TRAINING_ID] = description.training
    if description.chain_dir:
        env[contract.ENV_CHECKPOINT_URI] = uris.join(description.chain_dir, contract.USER_CHECKPOINTS_DIR)
    if description.warm_start:
        env[contract.ENV_WARM_START] = str(workspace.warm_start)
    if resumed is not None:
        if resumed.path:
            env[contract.ENV_RESUME_FROM] = resumed.path
        if resumed.point.step is not None:
            env[contract.ENV_RESUME_STEP] = str(resumed.point.step)
    return env

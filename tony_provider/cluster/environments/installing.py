"""Installing requirements into a directory of packages, by uv or else by pip, for a Python and a platform."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from tony_provider.cluster.environments.package_indexes import PackageIndexes, pip_command, pip_indexes, uv_indexes
from tony_provider.cluster.environments.requirements import Requirements
from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.child_environment import absolute_entries, child_environment
from tony_provider.runtime.wheel_name import Version, version_text

_SECONDS = 3600.0  # that an installation may take: some GB over a slow line
_MOST_SAID = 4000  # characters of what a failed one has printed
_PLATFORM = re.compile(r"manylinux_2_(?P<glibc>\d{1,2})_(?P<machine>\w+)")
_OLDEST_GLIBC = 5  # 2.5: manylinux1
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # names of their own, by the minor of glibc
UV = "uv"
PIP = "pip"


class BuildFailed(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """An environment could not be built."""


@attrs.frozen
class BuildTarget:
    """The Python and the machine of the nodes that an environment is built for."""

    version: Version
    machine: str  # as ``uname -m`` says it
    glibc: int | None = None  # minor version that nodes have at least; None: what this machine has

    @classmethod
    def of(cls, version: Version | None, platform: str | None) -> BuildTarget:
        """``platform`` as wheels have it. Default: this Python on this machine. Raises BuildFailed."""
        own = cls(sys.version_info[:2], os.uname().machine)
        if platform is None:
            # This Python cannot compile for another version, so the build needs wheels: for Linux of 2018 and later.
            return own if version in (None, own.version) else cls(version, own.machine, 28)
        match = _PLATFORM.fullmatch(platform)
        if match is None:
            raise BuildFailed(f"--platform: {platform!r} is none; write one such as manylinux_2_28_x86_64")
        return cls(version or own.version, match["machine"], int(match["glibc"]))

    @property
    def platform(self) -> str:
        """As a part of an environment's name."""
        return f"linux_{self.machine}" if self.glibc is None else f"manylinux_2_{self.glibc}_{self.machine}"

    @property
    def pip_platforms(self) -> Iterator[str]:
        """Yield all wheel platforms that nodes with this glibc can use, the newest first."""
        for minor in range(self.glibc or 0, _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{self.machine}"


def find_installer(wanted: str | None, requirements: Requirements) -> str:
    """Return ``uv`` if it is installed, otherwise ``pip``. Raises BuildFailed."""
    if wanted == UV or (wanted is None and _uv()):
        if not _uv():
            raise BuildFailed("there is no uv, beside this Python or on PATH")
        return UV
    if requirements.is_lock:
        raise BuildFailed(f"{requirements.file.name} is read by uv, and there is none, beside this Python or on PATH")
    if importlib.util.find_spec("pip") is None:
        raise BuildFailed(f"there is neither uv nor, in {sys.executable}, pip: install one of them there")
    return PIP


def indexes_of(installer: str) -> PackageIndexes:
    """Return the package indexes that the caller has configured for the installer. Raises IndexProblem."""
    if installer == UV:
        return uv_indexes()
    with tempfile.TemporaryDirectory(prefix="tony-env-") as empty:
        return pip_indexes(Path(empty))


def install(
    installer: str, indexes: PackageIndexes, requirements: Requirements, target: BuildTarget, directory: Path
) -> None:
    """Install into ``directory``, without files of the current directory and without secrets of this process.

    Raises BuildFailed with the installer's message.
    """
    empty = directory.with_name("empty")
    empty.mkdir()
    configuration = directory.with_name("uv.toml")
    configuration.touch(0o600)
    configuration.write_text(indexes.configuration, encoding="utf-8")
    command = [*_uv_command(target), "--config-file", str(configuration)] if installer == UV else _pip_command(target)
    command += ["--target", str(directory), "--requirement", str(requirements.file.absolute())]
    command += ["--require-hashes"] if requirements.has_hashes else []
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            cwd=empty,
            env=indexes.variables,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{installer} was not done after {_SECONDS:g} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-_MOST_SAID:]
        what = f"Python {version_text(target.version)} on {target.platform}"
        raise BuildFailed(f"{installer} could not install {requirements.file} for {what}:\n{said}")


def version_of(installer: str) -> str:
    """Such as ``uv 0.8.3``."""
    command = [str(_uv()), "--version"] if installer == UV else [*pip_command(), "--version"]
    env = child_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd="/", env=env)
    return " ".join(done.stdout.split()[:2]) or installer


def _uv() -> str | None:
    path = absolute_entries(os.environ.get("PATH", os.defpath))
    return shutil.which(UV, path=os.pathsep.join([str(Path(sys.executable).parent), path]))


def _uv_command(target: BuildTarget) -> list[str]:
    command = [str(_uv()), "pip", "install", "--quiet", "--link-mode", "copy", "--python", sys.executable]
    if target.glibc is None:
        return command
    platform = f"{target.machine}-manylinux_2_{target.glibc}"
    other = ["--python-version", version_text(target.version), "--python-platform", platform]
    return [*command, *other, "--only-binary", ":all:"]


def _pip_command(target: BuildTarget) -> list[str]:
    command = [*pip_command(), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if target.glibc is None:
        return command
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version_text(target.version)]
    return command + [argument for each in target.pip_platforms for argument in ("--platform", each)]

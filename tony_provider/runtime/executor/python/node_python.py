"""The Pythons of this node, and where they find their packages."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.executor.python.errors import PythonEnvError
from tony_provider.runtime.executor.python.running import Runner
from tony_provider.runtime.wheel_name import Version

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


def node_pythons(environ: Mapping[str, str], runner: Runner) -> Iterator[NodePython]:
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

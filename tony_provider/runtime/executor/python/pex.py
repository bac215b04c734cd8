"""PEX files: what one unpacks itself to, and with which Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.codec import CodecError
from tony_provider.runtime.executor.python.errors import PythonEnvError
from tony_provider.runtime.executor.python.node_python import NodePython
from tony_provider.runtime.executor.python.running import Runner

# Run by the PEX's own interpreter, with its modules on the path: everything else than what any Python has.
_LOOK = """
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


def search_path(candidates: str, path: str) -> str:
    """Where interpreters are, in the order of the launcher's candidates; what has no slash is on PATH, ``path``."""
    named = [os.path.dirname(each) or path for each in candidates.split(":") if each]  # noqa: PTH120 - of a list
    absolute = [each for each in named if each.startswith("/")]  # not the job's own environment, which the PEX is
    return os.pathsep.join(dict.fromkeys([*absolute, path]))


def unpacked_pex(pex: Path, root: Path, environ: Mapping[str, str], runner: Runner) -> NodePython:
    """The Python that a PEX runs on, with the directories below ``root`` that it has unpacked its packages to. Blocks.

    It looks for one by itself, as its own conditions say: the executor's, then where the launcher has looked, and on
    PATH. Raises PythonEnvError, Cancelled, OSError.
    """
    said = runner.output(
        [sys.executable, str(pex), "-c", _LOOK],
        f"the PEX {pex.name}",
        PATH=search_path(environ.get(contract.ENV_PYTHON_CANDIDATES, ""), runner.environ.get("PATH", os.defpath)),
        PEX_ROOT=str(root),
        PEX_INTERPRETER="1",
        PEX_IGNORE_RCFILES="1",
    )
    try:
        return NodePython.of_output(said)
    except CodecError as error:
        raise PythonEnvError(f"{pex.name} is no PEX: it did not say where its packages are ({error})") from error

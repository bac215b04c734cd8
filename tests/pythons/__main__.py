"""``python -m tests.pythons [VERSION …]``: the tests that need no daemons, on one Python after the other.

Each has an environment of its own in ``.tony/pythons``, which stays for the next time. Interpreters are looked for on
PATH, with pyenv and with uv, and none is downloaded: those that are not here are named.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.jobs.pythons import find_python
from tests.pythons.environment import ROOT, environment
from tests.pythons.sides import SIDES, Side

HOME = ROOT / ".tony" / "pythons"
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def main(chosen: Sequence[str]) -> int:
    """The exit code: 0 when all that could run has passed."""
    known = [version for side in SIDES for version in side.versions]
    unknown = [version for version in chosen if version not in known]
    if unknown:
        print(f"{', '.join(unknown)}: not among {', '.join(known)}", file=sys.stderr)
        return 2
    said = {
        f"{version:5} {side.name}": run(side, version)
        for side in SIDES
        for version in side.versions
        if not chosen or version in chosen
    }
    print("\n" + "\n".join(f"{what:25} {result}" for what, result in said.items()))
    return 1 if "FAILED" in said.values() else 0


def run(side: Side, version: str) -> str:
    """What is said of it in the table."""
    interpreter = Path(sys.executable) if version == OWN else find_python(version)
    if interpreter is None:
        return f"skipped: no Python {version} is here (pyenv install {version}, or uv python install {version})"
    print(f"\nPython {version}, {side.name}: setting up {HOME / version} …", flush=True)
    python = environment(HOME / version, interpreter, side.requirements)
    modules = called([python, "-m", "tests.pythons.import_all", "tony_provider.runtime"])
    tests = called([python, "-m", "pytest", "-q", "--no-daemons", "-m", "not long", *side.tests])
    return "passed" if modules == tests == 0 else "FAILED"


def called(command: Sequence[str | Path]) -> int:
    """The exit code."""
    # Some tests have gRPC in their process, whose fork handlers crash programs that Python 3.9 starts.
    environ = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

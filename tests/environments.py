"""Environments that know nothing of us: wheels from a package index, and a PEX of them. Made once in a session."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PURE, COMPILED = "cowsay", "markupsafe"
PINNED = ("cowsay==6.1", "markupsafe==3.0.4")
# Says what a program sees: its packages, those of processes that it starts, and whether any of the runtime's are there.
LOOK = """
import importlib.util, json, os, subprocess, sys
import cowsay, markupsafe._speedups
child = "import cowsay, markupsafe._speedups; print(cowsay.__file__)"
started = subprocess.run([sys.executable, "-I", "-c", child], env={}, capture_output=True, text=True, check=True)
print("seen", json.dumps({
    "cowsay": cowsay.__file__, "child": started.stdout.strip(), "prefix": sys.prefix, "version": sys.version_info[:2],
    "ours": [name for name in ("tony_provider", "cattrs", "grpc") if importlib.util.find_spec(name)],
    "pex": [name for name in os.environ if name.startswith("PEX")],
}))
"""


@cache
def wheels() -> dict[str, Path]:
    """A pure and a compiled wheel, for this Python, by their projects."""
    folder = _folder() / "wheels"
    _run([sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--dest", str(folder), *PINNED])
    return {project: next(folder.glob(f"{project}-*.whl")) for project in (PURE, COMPILED)}


@cache
def pex() -> Path:
    """A PEX of both, as its own tool makes it."""
    file = _folder() / "both.pex"
    found = str(wheels()[PURE].parent)
    _run([sys.executable, "-m", "pex", "--no-index", "--find-links", found, *PINNED, "--output-file", str(file)])
    return file


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tony-environments-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

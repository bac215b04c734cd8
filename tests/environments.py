"""Environments that know nothing of us: wheels from a package index, and what other tools pack of them.

Each is made once in a session.
"""

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
PYARROW = "pyarrow==26.0.1"
PACKERS = ("venv-pack==0.2.0", "conda-pack==0.9.2", "setuptools<81")
NODE_PYTHON = Path("/usr/bin/python3")  # which whoever runs jobs may read, wherever that of the tests is
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


@cache
def venv_packed() -> Path:
    """A virtual environment of both over the node's Python, as venv-pack packs it."""
    folder, file = _folder() / "venv", _folder() / "venv.tar.gz"
    _virtual_environment(folder, *PINNED)
    _run([str(_packers() / "venv-pack"), "--prefix", str(folder), "--output", str(file)])
    return file


@cache
def with_pyarrow() -> Path:
    """The directory of a virtual environment over the node's Python that reads Parquet."""
    folder = _folder() / "pyarrow"
    _virtual_environment(folder, PYARROW)
    return folder


@cache
def conda_packed() -> Path:
    """A Python of its own with both, as conda-pack packs it.

    Its prefix is laid out by hand, of the node's Python: conda's own are not to be had from a package index.
    """
    folder, file = _folder() / "conda", _folder() / "conda.tar.gz"
    program = NODE_PYTHON.resolve()
    library = folder / "lib" / program.name
    shutil.copytree(f"/usr/lib/{program.name}", library, ignore=shutil.ignore_patterns("test", "dist-packages"))
    (folder / "bin").mkdir()
    shutil.copy(program, folder / "bin")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(program.name)
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta" / "history").touch()
    packages = library / "dist-packages"  # where Debian's looks
    _run([_UV, "pip", "install", "--python", str(NODE_PYTHON), "--target", str(packages), *PINNED])
    cowsay = folder / "bin" / PURE
    cowsay.write_text(f"#!{folder}/bin/python\nfrom cowsay.__main__ import cli\ncli()\n")  # as pip leaves it there
    cowsay.chmod(0o755)
    _run([str(_packers() / "conda-pack"), "--prefix", str(folder), "--output", str(file)])
    return file


@cache
def _packers() -> Path:
    """The directory with the programs that pack."""
    folder = _folder() / "packers"
    _virtual_environment(folder, *PACKERS)
    return folder / "bin"


_UV = str(Path(sys.executable).with_name("uv"))


def _virtual_environment(folder: Path, *packages: str) -> None:
    _run([_UV, "venv", "--python", str(NODE_PYTHON), str(folder)])
    _run([_UV, "pip", "install", "--python", str(folder / "bin" / "python"), *packages])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tony-environments-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

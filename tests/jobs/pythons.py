"""Pythons of this machine that are not the one that runs the tests, for nodes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EVERY = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")  # that the runtime supports
OLDEST = EVERY[0]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def find_python(version: str = OLDEST) -> Path | None:
    """An interpreter of this version: on PATH, of pyenv, or of uv; None when there is none."""
    assert version != OWN
    for candidate in _candidates(version):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return candidate.resolve()
    return None


def _candidates(version: str) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"):
        command = [uv, "python", "find", "--no-project", version]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield Path(done.stdout.strip())


def programs_without_python(folder: Path) -> Path:
    """A folder with this system's programs and no Python, to be the nodes' whole PATH."""
    folder.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for program in Path(directory).iterdir():
            link = folder / program.name
            if not program.name.startswith("python") and not link.exists():
                link.symlink_to(program)
    return folder

"""Virtual environments beside that of the tests, which stay for the next time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")


def environment(place: Path, interpreter: str | Path, requirements: Sequence[str]) -> Path:
    """The Python of the environment there, with all that is required, as ``uv pip install`` takes it.

    Raises subprocess.CalledProcessError.
    """
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([_UV, "venv", "--quiet", "--python", interpreter, place], cwd=ROOT, check=True)
    subprocess.run([_UV, "pip", "install", "--quiet", "--python", python, *requirements], cwd=ROOT, check=True)
    return python

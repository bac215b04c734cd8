"""Tools that are run in environments of their own, of versions that are named here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
CYCLONEDX = "cyclonedx-bom==7.5.0"
PIP_AUDIT = "pip-audit==2.10.1"


def run_tool(package: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a package from PyPI, which uv keeps in its cache."""
    words = [UV, "tool", "run", "--quiet", "--from", package, *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

"""``python -m tests.supply.hashes``: resolve anew what `airflow tony runtime build` downloads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.supply.tools import ROOT, UV

REQUIREMENTS = ROOT / "tony_provider" / "runtime" / "requirements.txt"
HASHES = REQUIREMENTS.with_name("requirements-hashes.txt")
OLDEST = "3.9"  # that nodes may have: what it has, newer ones have too


def head(text: str) -> str:
    """The comment that the file begins with."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("# "))


def main() -> int:
    """An exit code."""
    options = ["--quiet", "--no-header", "--no-annotate", "--no-build", "--generate-hashes", "--python-version", OLDEST]
    command = [UV, "pip", "compile", *options, str(REQUIREMENTS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        Path(HASHES).write_text(head(HASHES.read_text()) + done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

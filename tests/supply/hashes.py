"""``python -m tests.supply.hashes``: resolve anew what `airflow tony runtime build` downloads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.supply.tools import ROOT, UV

REQUIREMENTS = ROOT / "tony_provider" / "runtime" / "requirements.txt"
HASHES = REQUIREMENTS.with_name("requirements-hashes.txt")
OLDEST = "3.9"  # that nodes may have: what it has, newer ones have too
OBJECT_STORES = "obstore"  # of several versions, because none has all of the Pythons and lists names as they are


def head(text: str) -> str:
    """The comment that the file begins with."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("# "))


def main() -> int:
    """An exit code."""
    lines = REQUIREMENTS.read_text().splitlines(keepends=True)
    optional = [line for line in lines if line.startswith(OBJECT_STORES)]
    try:
        found = resolve([line for line in lines if line not in optional]) + resolve(
            optional, "--universal", "--no-deps"
        )
    except subprocess.CalledProcessError as error:
        return error.returncode
    Path(HASHES).write_text(head(HASHES.read_text()) + found)
    return 0


def resolve(requirements: list[str], *more: str) -> str:
    """The versions that the oldest Python takes, with their hashes. Raises CalledProcessError."""
    options = ["--quiet", "--no-header", "--no-annotate", "--no-build", "--generate-hashes", "--python-version", OLDEST]
    command = [UV, "pip", "compile", *options, *more, "-"]
    given = "".join(requirements)
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())

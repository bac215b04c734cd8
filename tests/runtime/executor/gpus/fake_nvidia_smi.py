"""A fake of nvidia-smi, for nodes without a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def fake_nvidia_smi(directory: Path, names: Sequence[str], *, script: str = "") -> str:
    """Put one below the directory that lists these GPUs, or does what ``script`` says; returns a PATH with it."""
    folder = directory / "fake-nvidia"
    folder.mkdir()
    lines = [f"echo 'GPU {number}: A fake (UUID: {name})'" for number, name in enumerate(names)]
    program = folder / "nvidia-smi"
    program.write_text("\n".join(["#!/bin/sh", '[ "$*" = -L ] || exit 2', script, *lines, ""]))
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"

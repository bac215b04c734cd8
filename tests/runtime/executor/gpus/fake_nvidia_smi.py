"""A fake of nvidia-smi, for nodes without a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def fake_nvidia_smi(directory: Path, names: Sequence[str], *, script: str = "", busy: Sequence[str] = ()) -> str:
    """Put one below the directory that lists these GPUs, or does what ``script`` says; returns a PATH with it.

    A process runs on those that are ``busy``.
    """
    folder = directory / "fake-nvidia"
    folder.mkdir()
    lines = [f"echo 'GPU {number}: A fake (UUID: {name})'" for number, name in enumerate(names)]
    program = folder / "nvidia-smi"
    asked = "--query-compute-apps=pid --format=csv,noheader"
    uses = [f"[ \"$*\" = '-i {each} {asked}' ] && echo 4711 && exit" for each in busy]
    idle = [f"[ \"$*\" = '-i {each} {asked}' ] && exit" for each in names]
    program.write_text("\n".join(["#!/bin/sh", *uses, *idle, '[ "$*" = -L ] || exit 2', script, *lines, ""]))
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"

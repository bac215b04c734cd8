"""Commands as ours run them: in the working directory, by /bin/sh."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tony_provider.importing.draft import Draft

_VENV = "venv"  # the directory that TonY unpacks an environment into
_BASH = re.compile(r"(?:^|[;&|(\n][ \t]*)(?:source|declare|shopt|pushd|popd)\s|\[\[|<<<|<\(|\bpipefail\b|&>|\$\{!")


def for_sh(text: str) -> str:
    """A command that another system has bash run: /bin/sh does, unless it says something that is bash's alone."""
    return f"bash -c {shlex.quote(text)}" if _BASH.search(text) else text


def python_call(program: str, *, arguments: str | None, python: str | None, in_venv: bool, top: str) -> str:
    """Return the command that TonY's client makes of a program.

    ``in_venv``: a relative ``python`` lies in the environment, as ``unpacked_environment`` unpacks it. ``top``: the way
    from where the command runs to the working directory.
    """
    if python is not None and in_venv and not python.startswith("/"):
        python = f"{top}{_VENV}/{python}"
    return " ".join(part for part in (python, program, arguments) if part)


def unpacked_environment(draft: Draft, environment: str) -> None:
    """Unpack an environment where TonY always does: commands of any kind may name a file in it."""
    draft.add("archives", f"{environment}::{_VENV}", "-python_venv")
    draft.leave(
        "-python_venv",
        "is unpacked as TonY does it. Packed by venv-pack or conda-pack, it can be `python_env`, whose `bin` comes "
        "first on PATH",
        environment,
    )


def source_folder(draft: Draft, name: str, below: Path, key: str) -> str:
    """Take a source directory along: what is in it lies in the working directory itself.

    Where this machine has it not, it is taken as a whole, and what is returned is the directory to begin commands in.
    """
    folder = below / name
    if folder.is_dir():
        for each in sorted(folder.iterdir()):
            if not each.name.startswith(".") and each.name != "__pycache__":
                draft.add("files", f"{name.rstrip('/')}/{each.name}", key)
        return ""
    draft.add("files", name.rstrip("/"), key)
    draft.leave(
        key,
        "is not on this machine, so it is taken as a whole; commands begin in it, and other files are above it",
        name,
    )
    return shlex.quote(Path(name.rstrip("/")).name)

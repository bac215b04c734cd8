"""Explains the failure of a shell that could not run its command."""

from __future__ import annotations

from tony_provider.runtime import shell

_QUOTED = 200  # characters of a command or of a shell's complaint that are quoted


def command_problem(command: str, exit_code: int, stderr: str) -> str:
    """What is wrong with the command itself, for the exit codes that say so; else empty."""
    if exit_code == shell.NOT_FOUND:
        said = _complaint(stderr, "not found", "No such file")
        return f"the command was not found: {_short(command)}{said}; it must be in files, in python_env or on PATH"
    if exit_code == shell.NOT_EXECUTABLE:
        said = _complaint(stderr, "denied", "cannot execute", "Is a directory", "Exec format")
        return f"the command cannot be executed: {_short(command)}{said}"
    return ""


def _complaint(stderr: str, *words: str) -> str:
    lines = [line for line in stderr.splitlines() if any(word in line for word in words)]
    return f" ({_short(lines[-1])})" if lines else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTED else line[: _QUOTED - 1] + "…"

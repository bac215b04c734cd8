"""The GPUs of a node, by the names that CUDA_VISIBLE_DEVICES takes."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Mapping

log = logging.getLogger(__name__)

_PROCESSES = ("--query-compute-apps=pid", "--format=csv,noheader")
_TIMEOUT = 60.0  # seconds; it takes some where no driver is loaded yet, and hangs where one is broken
# GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5b…), and below it each part that it is cut into (Multi-Instance GPU)
_LINE = re.compile(r"\s*(GPU|MIG)\b.*\(UUID: *([^\s()]+)\)\s*")


class DevicesUnknownError(Exception):
    """Nothing on the node says which GPUs it has; the text says why."""


def of_node(environ: Mapping[str, str]) -> list[str]:
    """Unique names of this node's GPUs, as ``nvidia-smi`` lists them.

    Of one that is cut into parts, the parts. Blocks. Raises DevicesUnknownError.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        raise DevicesUnknownError(
            "there is no nvidia-smi on its PATH to say which GPUs it has; without one name them in the connection "
            "(gpu_devices)"
        )
    found = in_list(_output(program, environ, "-L"))
    if not found:
        raise DevicesUnknownError(f"{program} -L lists no GPU")
    return found


def in_list(text: str) -> list[str]:
    """The names in what ``nvidia-smi -L`` prints."""
    found: list[str] = []
    whole = ""
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        kind, name = match.groups()
        if kind == "GPU":
            whole = name
        elif whole in found:
            found.remove(whole)
        found.append(name)
    return found


def is_busy(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether nvidia-smi lists a process that computes on a GPU, or False if nvidia-smi cannot tell. Blocks."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    try:
        return program is not None and bool(_output(program, environ, "-i", name, *_PROCESSES).strip())
    except DevicesUnknownError as error:
        log.info("GPU %s counts as idle, because its processes cannot be listed: %s", name, error)
        return False


def _output(program: str, environ: Mapping[str, str], *arguments: str) -> str:
    try:
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise DevicesUnknownError(f"{program} cannot be started: {error}") from error
    try:
        said, _ = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        process.kill()  # and not waited for: what hangs in a driver may not end even so
        raise DevicesUnknownError(f"{program} {arguments[0]} did not answer within {_TIMEOUT:g} s") from error
    if process.returncode:
        last = (said.strip().splitlines() or ["without a word"])[-1]
        raise DevicesUnknownError(f"{program} {arguments[0]} failed with exit code {process.returncode}: {last}")
    return said

"""The class path of the node's Hadoop: what libhdfs, which starts a JVM in the user process, reads of CLASSPATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.text import replaced

_SECONDS = 60.0  # for a JVM, on a node where many containers start one at the same time
_SAID = 300  # characters of its errors in a message


class ClassPathError(Exception):
    """The node's Hadoop does not tell its class path; the message says why."""


def hadoop_program(environ: Mapping[str, str]) -> Optional[str]:
    """The path of the node's ``hadoop``; None when it has none. Blocks."""
    homes = [environ[name] for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME") if environ.get(name)]
    path = os.pathsep.join([*(f"{home}/bin" for home in homes), environ.get("PATH") or os.defpath])
    return shutil.which("hadoop", path=path)


def class_path(program: str, environ: Mapping[str, str]) -> str:
    """Every jar of the node's Hadoop by its name: a JVM within a process expands no ``*``.

    Blocks for a JVM's start; raises ClassPathError.
    """
    try:
        done = subprocess.run(
            [program, "classpath", "--glob"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClassPathError(f"{program} classpath --glob took longer than {_SECONDS:g} s") from error
    except OSError as error:
        raise ClassPathError(f"{program} cannot be run: {error.strerror}") from error
    lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    found = [line.strip() for line in lines if line.strip()]
    if done.returncode or not found:
        said = replaced(done.stderr.decode("utf-8", "replace").strip())[-_SAID:]
        raise ClassPathError(f"{program} classpath --glob ended with exit code {done.returncode}: {said}")
    return found[-1]

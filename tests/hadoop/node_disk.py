"""NodeDisk.java, a class of ours in the NodeManagers: compiled once for each Hadoop version, kept beside its jars."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.hadoop.resolve import ResolveError, resolve
from tests.hadoop.tools import java_compiler

CLASS = "tony.tests.NodeDisk"
_SOURCE = Path(__file__).with_name("NodeDisk.java")
_RELEASE = 8  # as Hadoop itself: any Java that it runs on reads the classes
_COMPILE_SECONDS = 120


def node_disk(version: str) -> Path:
    """The folder with the class, for a class path. Raises ResolveError with what the compiler said."""
    hadoop = resolve(version)
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    target = hadoop.parent / f"{hadoop.name}-node-disk-{digest}"
    if target.is_dir():
        return target
    with (hadoop.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _compile(hadoop / "jars", target)
    return target


def _compile(jars: Path, target: Path) -> None:
    """Into a folder beside the target, which is then renamed: it appears whole."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _run_compiler(jars, draft)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft)
        raise


def _run_compiler(jars: Path, output: Path) -> None:
    command = [str(java_compiler()), "-nowarn", "--release", str(_RELEASE), "-classpath", f"{jars}/*"]
    done = subprocess.run(
        [*command, "-d", str(output), str(_SOURCE)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMPILE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ResolveError(f"{_SOURCE.name} could not be compiled:\n{done.stdout[-3000:]}")

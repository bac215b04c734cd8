"""Java classes of ours in the daemons of nodes: compiled once for each Hadoop version, kept next to its jars."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.hadoop.resolve import ResolveError, resolve
from tests.hadoop.tools import java_compiler

NODE_DISK = "tony.tests.NodeDisk"
OWN_ADDRESS = "tony.tests.OwnAddress"
_SOURCES = sorted(Path(__file__).parent.glob("*.java"))
_RELEASE = 8  # as Hadoop itself: any Java that it runs on reads the classes
_COMPILE_SECONDS = 120


def node_classes(version: str) -> Path:
    """Return the folder with the classes, for a class path. Raises ResolveError with what the compiler said."""
    hadoop = resolve(version)
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]
    target = hadoop.parent / f"{hadoop.name}-node-classes-{digest}"
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
        [*command, "-d", str(output), *map(str, _SOURCES)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMPILE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ResolveError(f"the classes of nodes could not be compiled:\n{done.stdout[-3000:]}")

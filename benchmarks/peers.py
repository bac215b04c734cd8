"""Systems that this project is compared with: skein, Spark, Ray and YARN's distributed shell.

They are installed in ``.tony`` on first use, under a hash of their parts. The functions return None if a system cannot
be installed here. The tables then leave out this system.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hadoop import REPOSITORY
from tests.hadoop.resolve import COPY_GOAL
from tests.jobs.pythons import find_python

# The last skein there is, and the newest of what it needs that it still works with.
SKEIN = ("skein==0.8.2", "grpcio==1.48.2", "protobuf==3.20.3", "setuptools==69.5.1")
SKEIN_PYTHONS = ("3.9", "3.10")
SPARK = ("torch==2.15.0", "pyspark==4.3.0", "ray[train,client]==2.60.0", "pandas==2.3.3", "pyarrow==26.0.1", "psutil")
_HOME = REPOSITORY / ".tony" / "bench-peers"
_SECONDS = 900.0  # time limit for one command of an installation
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>tony.bench</groupId><artifactId>shell</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-yarn-applications-distributedshell</artifactId>
    <version>{version}</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
"""


def skein_python() -> Path | None:
    """A Python that has skein."""
    base = next(filter(None, map(find_python, SKEIN_PYTHONS)), None)
    if base is None:
        _left_out("skein", f"no Python {', '.join(SKEIN_PYTHONS)} is here")
        return None
    return _environment("skein", base, SKEIN)


def spark_python() -> Path | None:
    """Return a Python that has Spark, Ray and PyTorch (about 6 GB)."""
    return _environment("spark", Path(sys.executable), SPARK)


def _environment(name: str, base: Path, packages: Sequence[str]) -> Path | None:
    """Return the Python of a virtual environment with these packages, which is created on first use."""
    place = _HOME / f"{name}-{_digest(*packages)}"
    python = place / "bin" / "python"
    if (place / "whole").exists():
        return python
    uv = Path(sys.executable).with_name("uv")
    shutil.rmtree(place, ignore_errors=True)
    commands: list[list[str | Path]] = [[uv, "venv", "--quiet", "--python", base, place]]
    commands.append([uv, "pip", "install", "--quiet", "--python", python, "--compile-bytecode", *packages])
    for command in commands:
        if (problem := _problem(command)) is not None:
            _left_out(name, problem)
            return None
    (place / "whole").touch()
    return python


def distributed_shell_jar(version: str) -> Path | None:
    """The jar of YARN's distributed shell, of a version of Hadoop that has one."""
    project = _POM.format(version=version)
    place = _HOME / f"shell-{version}-{_digest(project)}"
    if not place.exists():
        draft = place.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / "pom.xml").write_text(project)
        command: list[str | Path] = [
            "mvn",
            "--batch-mode",
            "-q",
            "-f",
            draft / "pom.xml",
            COPY_GOAL,
            f"-DoutputDirectory={draft}",
        ]
        if (problem := _problem(command)) is not None:
            _left_out("distributed shell", problem)
            return None
        draft.rename(place)
    return next(place.glob("*.jar"))


def _problem(command: Sequence[str | Path]) -> str | None:
    """Why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr or done.stdout)[-2000:]


def _left_out(name: str, why: str) -> None:
    print(f"{name} is left out: {why}", file=sys.stderr)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]

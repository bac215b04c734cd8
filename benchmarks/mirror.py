"""`python -m benchmarks.mirror`: checkpoints copied to HDFS by executors' mirrors, beside other copies of the same.

A gibibyte in large files, many small files, and eight ranks at once, each a process of its own. Beside the mirror: the
least that a copy over WebHDFS can be, which checks nothing and moves nothing, as many files at once; and Hadoop's own
`hdfs dfs -put`, whose start is measured apart. Aim: at least 0.95 of the raw copy's speed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from benchmarks import hadoop, program, save_series
from benchmarks.copier import at_once
from benchmarks.launchers.java_client import JavaClient
from benchmarks.report import OURS, Aim, Better, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.distribution import lay_out
from tests.jobs.places import USER
from tony_provider.runtime.checkpoint.stored_checkpoint import directory_name
from tony_provider.runtime.storage import WebHdfsConfig, open_storage

RAW, PUT = "raw WebHDFS", "hdfs dfs -put"
COPIERS = {OURS: "mirror", RAW: "raw", PUT: "put"}
AIM = Aim(0.95, Better.MORE)
SMALL_FILES = 400
ROUNDS = 3
_MEBIBYTE = 1 << 20


@attrs.frozen
class Case:
    """What is copied."""

    name: str
    files: int  # of each rank
    size: int  # bytes of each
    ranks: int = 1
    rounds: int = ROUNDS

    @property
    def mebibytes(self) -> float:
        return self.ranks * self.files * self.size / _MEBIBYTE


def cases(small_files: int) -> list[Case]:
    return [
        Case("1 GiB in 8 files", 8, 128 * _MEBIBYTE),
        Case("8 ranks at once, 1 GiB in 64 files", 8, 16 * _MEBIBYTE, ranks=8, rounds=4),
        Case(f"{small_files:,} files of 16 KiB", small_files, 16 << 10, rounds=2),
    ]


@attrs.frozen
class Copied:
    """What one copy, by all ranks, took."""

    seconds: float  # until the last rank was done
    cpu: float  # seconds, of the copying processes themselves; of Hadoop's command 0
    requests: int  # HTTP, to NameNode and DataNode; of Hadoop's command 0


def measure(
    small_files: int = SMALL_FILES, rounds: int | None = None, series: tuple[int, int] = (1024, 50_000)
) -> Report:
    """``series``: MiB of a large checkpoint and the number of small files in the series of saves."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("mirror") as cluster:
        hdfs = hdfs_command(cluster, Path(name))
        for case in cases(small_files):
            figures += _measured(case, cluster, Path(name), hdfs, rounds or case.rounds)
        with target_on(cluster) as target:
            figures += save_series.measure(cluster, Path(name), target, *series)
    title = (
        f"A checkpoint copied to HDFS on one machine, in turns, with one DataNode; {at_once(_MEBIBYTE)} large files "
    )
    return Report("mirror", title + f"or {at_once(1)} small ones of a rank at once", figures, ratios(figures))


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    speeds = [figure for (what, who), figure in by.items() if what.startswith(_SPEED) and who == OURS]
    return [
        Ratio.between(ours, by[ours.name, who], AIM if who == RAW else None) for ours in speeds for who in (RAW, PUT)
    ]


_SPEED = "copied: "


def _measured(case: Case, cluster: HadoopCluster, home: Path, hdfs: Path, rounds: int) -> Iterator[Figure]:
    found: dict[str, list[Copied]] = {who: [] for who in COPIERS}
    starts = []
    with target_on(cluster) as target, _crew(case, cluster, home, target, hdfs) as crew:
        for number in range(1, rounds + 1):
            turn = number % len(COPIERS)
            for who in [*list(COPIERS)[turn:], *list(COPIERS)[:turn]]:
                found[who].append(crew.copy(COPIERS[who], directory_name(number)))
                program.progress(f"{case.name}, round {number}: {who:14} {found[who][-1].seconds:6.2f} s")
            starts.append(crew.copy("put-start", directory_name(number)).seconds)
    yield from figures_of(case, found, starts)


def figures_of(case: Case, found: Mapping[str, Sequence[Copied]], starts: Sequence[float]) -> Iterator[Figure]:
    what, amount = f"{_SPEED}{case.name}", case.mebibytes
    for who, rounds in found.items():
        yield Figure(what, who, "MiB/s", [amount / each.seconds for each in rounds])
        yield Figure(f"whole copy, {case.name}", who, "s", [each.seconds for each in rounds])
    yield Figure(f"of that the start of its JVM, {case.name}", PUT, "s", list(starts))
    for who in (OURS, RAW):
        files = case.files * case.ranks
        yield Figure(f"requests for each file, {case.name}", who, "", [each.requests / files for each in found[who]])
        yield Figure(f"processor time, {case.name}", who, "s", [each.cpu for each in found[who]])


# -- those who copy ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Crew:
    """One process for each rank, ready to copy."""

    processes: list[subprocess.Popen[str]]

    def copy(self, kind: str, name: str) -> Copied:
        """By all of them at once."""
        began = time.monotonic()
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{kind} {name}\n")
            process.stdin.flush()
        said = [_said(process) for process in self.processes]
        seconds = time.monotonic() - began
        return Copied(seconds, sum(each["cpu"] for each in said), sum(each["requests"] for each in said))


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a copier ended with exit code {process.wait()}")
    said: dict[str, Any] = json.loads(line)
    return said


@contextmanager
def _crew(case: Case, cluster: HadoopCluster, home: Path, target: str, hdfs: Path) -> Iterator[Crew]:
    with tempfile.TemporaryDirectory(prefix="crew-", dir=home) as place:
        command = [sys.executable, "-m", "benchmarks.copier", "--namenode", cluster.webhdfs[0], "--hdfs", str(hdfs)]
        command += ["--target", target, "--files", str(case.files), "--bytes", str(case.size)]
        crew = Crew([_start(command, Path(place), rank) for rank in range(case.ranks)])
        try:
            for process in crew.processes:
                _said(process)  # that it is ready
            yield crew
        finally:
            for process in crew.processes:
                process.communicate()  # closes what it reads from


def _start(command: Sequence[str], place: Path, rank: int) -> subprocess.Popen[str]:
    own = ["--rank", str(rank), "--place", str(place / f"{rank}")]
    return subprocess.Popen([*command, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def target_on(cluster: HadoopCluster) -> Iterator[str]:
    target = f"/tmp/bench-{uuid.uuid4().hex}"
    try:
        yield target
    finally:
        with open_storage("hdfs:///", webhdfs=WebHdfsConfig(list(cluster.webhdfs), user=USER)) as storage:
            storage.remove(f"hdfs://{target}", recursive=True)


def hdfs_command(cluster: HadoopCluster, home: Path) -> Path:
    """Hadoop's command, as a client of the cluster has it."""
    client = JavaClient(cluster, home)
    named = {name: client.environment[name] for name in ("HADOOP_USER_NAME", "JAVA_HOME")}
    program_file = lay_out(home / "hadoop", cluster.settings.version) / "bin" / "hdfs"
    script = home / "hdfs"
    exports = "".join(f"export {name}='{value}'\n" for name, value in named.items())
    script.write_text(f"#!/bin/sh\n{exports}export HADOOP_CONF_DIR='{home / 'conf'}'\nexec '{program_file}' \"$@\"\n")
    script.chmod(0o755)
    return script


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--small-files", type=int, default=SMALL_FILES, help="such as 10000")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.small_files, arguments.rounds), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())

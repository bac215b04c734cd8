"""`python -m benchmarks.large_files`: one very large file of a checkpoint, stored on three DataNodes and restored.

The provider sends and fetches parts of such a file concurrently. It is compared with one WebHDFS stream, and with
Hadoop's commands `-put` and `-get`, including the start of their JVM. The aim is 1.5 times the speed of one stream. All
DataNodes share one disk here, so the figures show what several streams gain, and not what several disks gain.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import attrs

from benchmarks import copier, hadoop, program, raw_copy, save_series
from benchmarks.mirror import PUT, hdfs_command, target_on
from benchmarks.report import OURS, Aim, Better, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER
from tests.waiting import until
from tony_provider.runtime.checkpoint.catalog import Catalog

STREAM, GET = "one WebHDFS stream", "hdfs dfs -get"
DATANODES = 3
SETTINGS = replace(hadoop.SETTINGS, datanodes=DATANODES, nodemanagers=0)
AIM = Aim(1.5, Better.MORE)
MEBIBYTES, ROUNDS = 4096, 2
STORED, RESTORED = "stored", "restored"
_SECONDS = 3600.0  # for one copy
_FREED_SECONDS = 120.0  # DataNodes delete blocks some seconds after the file


@attrs.frozen
class Field:
    """A file, a cluster, and the ways to copy the file."""

    cluster: HadoopCluster
    place: Path  # a directory of this machine
    target: str  # a path on HDFS
    hdfs: Path  # the command of that name
    mebibytes: int

    def ours(self) -> tuple[float, float]:
        """Return the seconds of storing and of restoring in another container."""
        place = self.place / "container"
        given = Namespace(place=place, namenode=self.cluster.webhdfs[0], target=f"{self.target}/ours", rank=0)
        context = copier.context_of(given)
        try:
            context.checkpoints.begin(1, [0], alone=True)
            save_series.fill(context.checkpoints.path / "model.pt", self.mebibytes)
            began = time.monotonic()
            chain = context.container.description.chain_dir
            stored, _ = save_series.store(context, Catalog(context.storage, chain), 1)
            storing = time.monotonic() - began
            shutil.rmtree(context.checkpoints.path)
            context.checkpoints.path.mkdir()
            began = time.monotonic()
            context.checkpoints.restore(stored.point, 0, threading.Event())
            return storing, time.monotonic() - began
        finally:
            context.storage.close()

    def stream(self) -> tuple[float, float]:
        source, address = self._source(), self.cluster.webhdfs[0]
        return _timed(
            lambda: raw_copy.copy([source], address, USER, f"{self.target}/stream", at_once=1),
            lambda: raw_copy.fetch(f"{self.target}/stream/{source.name}", address, USER, self.place / "fetched"),
        )

    def commands(self) -> tuple[float, float]:
        source, target = self._source(), f"{self.target}/put"
        self._run("-mkdir", self.target)
        return _timed(
            lambda: self._run("-put", str(source), target), lambda: self._run("-get", target, str(self.place / "got"))
        )

    def _source(self) -> Path:
        source = self.place / "model.pt"
        save_series.fill(source, self.mebibytes)
        return source

    def _run(self, *arguments: str) -> None:
        subprocess.run([self.hdfs, "dfs", *arguments], check=True, timeout=_SECONDS, capture_output=True)


def _timed(store: Callable[[], None], restore: Callable[[], None]) -> tuple[float, float]:
    moments = [time.monotonic()]
    for act in (store, restore):
        act()
        moments.append(time.monotonic())
    return moments[1] - moments[0], moments[2] - moments[1]


def measure(mebibytes: int = MEBIBYTES, rounds: int = ROUNDS) -> Report:
    ways = {OURS: Field.ours, STREAM: Field.stream, PUT: Field.commands}
    found: dict[str, list[tuple[float, float]]] = {who: [] for who in ways}
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("large", SETTINGS) as cluster:
        hdfs = hdfs_command(cluster, Path(name))
        free = _free(Path(name))
        for number in range(1, rounds + 1):
            for who in [*list(ways)[number % len(ways) :], *list(ways)[: number % len(ways)]]:
                with target_on(cluster) as target, tempfile.TemporaryDirectory(prefix="copy-", dir=name) as place:
                    found[who].append(ways[who](Field(cluster, Path(place), target, hdfs, mebibytes)))
                seconds = " and ".join(f"{each:.1f} s" for each in found[who][-1])
                program.progress(f"round {number}: {who:20} {seconds}")
                until(lambda: _free(Path(name)) > free - mebibytes // 2, "freed disk", _FREED_SECONDS)
    figures = figures_of(mebibytes, found)
    title = f"One file of {_size(mebibytes)} stored and restored in turns, {DATANODES} DataNodes on one machine"
    return Report("large_files", title, figures, ratios(figures))


def figures_of(mebibytes: int, found: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    """Return the speeds. ``found``: for each way, the seconds of storing and of restoring in each round."""
    figures = []
    for number, what in enumerate((STORED, RESTORED)):
        for who, rounds in found.items():
            name = GET if who == PUT and what == RESTORED else who
            speeds = [mebibytes / seconds[number] for seconds in rounds]
            figures.append(Figure(f"{what}: one file of {_size(mebibytes)}", name, "MiB/s", speeds))
    return figures


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    found = []
    for (what, who), ours in by.items():
        if who == OURS:
            found.append(Ratio.between(ours, by[what, STREAM], AIM))
            command = PUT if what.startswith(STORED) else GET
            found.append(Ratio.between(ours, by[what, command], Aim(1.0, Better.MORE)))
    return found


def _size(mebibytes: int) -> str:
    return f"{mebibytes / 1024:g} GiB"


def _free(directory: Path) -> int:
    """Return the free MiB on the disk of a directory."""
    return shutil.disk_usage(directory).free >> 20


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--mebibytes", type=int, default=MEBIBYTES, help="MiB of the file (%(default)s), such as 20480")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.mebibytes, arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())

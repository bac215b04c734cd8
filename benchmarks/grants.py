"""`python -m benchmarks.grants`: how long a real ResourceManager takes to give the containers of a large job.

The ResourceManager is real, and so is how the application master asks; the NodeManagers are simulated: they register,
send a heartbeat a second, and launch nothing. Told are the seconds until the master has all containers, and the
ResourceManager's processor time for them. By default each node gives one container each time that it is heard of.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks import program
from benchmarks.grant_master import write
from benchmarks.hadoop import REPOSITORY, SETTINGS
from benchmarks.processor import cpu_seconds
from benchmarks.report import OURS, Figure, Ratio, Report, Size
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.resolve import resolve
from tests.waiting import until

NODES = 300
NODE_MEMORY, NODE_VCORES = 8192, 64  # of a simulated one
MASTER_MEMORY = 512
ROUNDS = {100: 3, 1000: 3, 3000: 3}  # by containers
USER = "alice"
GRANTED, CPU = "all containers given", "CPU of the ResourceManager meanwhile"
_SECONDS = 300.0


@attrs.frozen
class Master:
    """The application master of `benchmarks.grant_master`."""

    folder: Path
    manager: int  # process of the ResourceManager

    def ask(self, number: int, containers: int) -> tuple[float, float]:
        """Seconds until it had them, and processor time of the ResourceManager until they were given back."""
        before = cpu_seconds(self.manager)
        write(self.folder / f"ask-{number}", str(containers))
        granted, failed = self.folder / f"granted-{number}", self.folder / "failed"
        until(lambda: granted.exists() or failed.exists(), f"{containers} containers", _SECONDS, 0.05)
        if failed.exists():
            raise RuntimeError(failed.read_text())
        return float(granted.read_text()), cpu_seconds(self.manager) - before


def measure(rounds: Mapping[int, int] = ROUNDS, nodes: int = NODES) -> Report:
    """``rounds`` by the number of containers."""
    found: dict[int, list[tuple[float, float]]] = {containers: [] for containers in rounds}
    with _cluster() as cluster, _master(cluster) as master, _nodes(cluster, nodes):
        number = 0
        for turn in range(max(rounds.values())):
            for containers in (each for each, times in rounds.items() if turn < times):
                number += 1
                found[containers].append(master.ask(number, containers))
                program.progress(f"round {turn + 1}: {containers} containers: {found[containers][-1]}")
    title = f"A real ResourceManager of {nodes} simulated NodeManagers, heard of once a second"
    figures = list(_figures(found))
    return Report("grants", title, figures, ratios(figures))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--containers", type=program.sizes, default=list(ROUNDS), help="such as 100,1000")
    parser.add_argument("--nodes", type=int, default=NODES, help="simulated NodeManagers (%(default)s)")
    arguments = parser.parse_args()
    rounds = {containers: arguments.rounds or ROUNDS.get(containers, 3) for containers in arguments.containers}
    return program.tell(measure(rounds, arguments.nodes), arguments.output)


def _figures(found: Mapping[int, Sequence[tuple[float, float]]]) -> Iterator[Figure]:
    for containers, rounds in found.items():
        size = Size(containers, "containers")
        yield Figure(GRANTED, OURS, "s", [seconds for seconds, _ in rounds], size)
        yield Figure(CPU, OURS, "s", [cpu for _, cpu in rounds], size)


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    """Those that `make bench-check` looks at; how many containers a second it should be, nobody has said."""
    return [Ratio.alone(figure) for figure in figures if figure.what == GRANTED]


@contextmanager
def _cluster() -> Iterator[HadoopCluster]:
    """One of its own: it goes on taking the simulated nodes for real ones for a while."""
    cluster = HadoopCluster(REPOSITORY / ".tony" / "bench-grants", SETTINGS)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def _master(cluster: HadoopCluster) -> Iterator[Master]:
    """Registered, while there are no other nodes than real ones; ended when all is done."""
    client, apps = cluster.client(USER), f"{cluster.rm_webapp[0]}/ws/v1/cluster/apps"
    made = json.loads(client.request("POST", f"{apps}/new-application", b""))["application-id"]
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        python = f"exec {sys.executable} -m benchmarks.grant_master {folder} {','.join(cluster.state.scheduler)}"
        submission = {
            "application-id": made,
            "application-name": "grants",
            "max-app-attempts": 1,
            "resource": {"memory": MASTER_MEMORY, "vCores": 1},
            "am-container-spec": {
                "commands": {"command": f"{python} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
                "environment": {"entry": [{"key": "PYTHONPATH", "value": str(REPOSITORY)}]},
            },
        }
        client.request("POST", apps, json.dumps(submission).encode(), "application/json")
        until((folder / "registered").exists, f"{made} to register", _SECONDS)
        yield Master(folder, cluster.state.processes["resourcemanager-1"].pid)


@contextmanager
def _nodes(cluster: HadoopCluster, number: int) -> Iterator[None]:
    tracker = cluster.state.addresses.resourcemanagers[0].tracker
    jars = resolve(cluster.settings.version) / "jars"
    command = [
        sys.executable,
        "-m",
        "benchmarks.grant_nodes",
        tracker,
        str(jars),
        *map(str, (number, NODE_MEMORY, NODE_VCORES)),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "registered\n":
            raise RuntimeError("the simulated nodes were not taken")
        try:
            yield
        finally:
            process.stdin.close()


if __name__ == "__main__":
    raise SystemExit(main())

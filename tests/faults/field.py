"""Where rows run: a cluster, the jobs under test on it, and how the cluster is mended after each row."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.entries import Diary
from tests.faults.row import TRAIN
from tests.faults.training import Training
from tests.faults.weights import PROGRAMS, References
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.processes import Process, stop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.jobs.processes import processes_of
from tony_provider.runtime.protocol.status import TaskStatus

SETTINGS = Settings(
    resourcemanagers=2,
    nodemanagers=3,
    datanodes=2,
    preemption=True,
    expiry_seconds=10,
    node_vcores=14,  # a fifth of all of them, the small queue, is for as many tasks as a fifth of the memory
    properties={
        "hdfs-site": {
            "dfs.replication": "2",
            # A DataNode that is gone is known to be after 12 s, and written to no more after 3.
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.stale.datanode.interval": "3000",
            "dfs.namenode.avoid.write.stale.datanode": "true",
            "dfs.namenode.avoid.read.stale.datanode": "true",
        },
        "yarn-site": {
            # Disks that a test has filled are not the node's.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # A node's end is its master's as well; on a busy machine a master's start takes long.
            "yarn.am.liveness-monitor.expiry-interval-ms": "60000",
        },
        # The small queue for two gangs and a master; half of it for masters.
        "capacity-scheduler": {
            "yarn.scheduler.capacity.root.default.capacity": "20",
            "yarn.scheduler.capacity.root.default.accessible-node-labels.gpu.capacity": "20",
            "yarn.scheduler.capacity.root.small.capacity": "20",
            "yarn.scheduler.capacity.root.small.maximum-capacity": "20",
            "yarn.scheduler.capacity.root.small.accessible-node-labels.gpu.capacity": "20",
            "yarn.scheduler.capacity.root.small.accessible-node-labels.gpu.maximum-capacity": "20",
            "yarn.scheduler.capacity.root.small.maximum-am-resource-percent": "0.5",
        },
    },
)
STEPS, EVERY = 60, 10
PACE = 0.15  # seconds that a step takes
# More than half of a node's: two never share one, and there is a node to spare. What TensorFlow needs is a fifth of it.
WORKER_MEMORY = "2200MiB"


@dataclass
class Field:
    hadoop: HadoopCluster
    folder: Path  # for diaries and reports
    references: References
    program: str = TRAIN
    worker_memory: str = WORKER_MEMORY
    problems: list[str] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    _last_acts: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.place = YarnPlace(cluster=self.hadoop)

    def train(
        self,
        *,
        environment: dict[str, str] | None = None,
        pace: float = PACE,
        tasks: Any = None,
        memory: str = "",
        **changes: Any,
    ) -> Training:
        """Start a training of the row's program. ``environment`` are FAULTS_* variables, ``pace`` is in seconds a step.

        ``memory`` of each worker, or ``tasks`` instead of two workers; ``changes`` go over the specification.
        """
        program = self.program
        diary = self.new_diary()
        what = {"FAULTS_STEPS": str(STEPS), "FAULTS_EVERY": str(EVERY), **(environment or {})}
        diary.set_pace(pace)
        spec = self.spec(diary, what, tasks or self.workers(memory)) | changes
        training = Training(self.place, self.place.submit(spec), diary, program, _deciding(what), self.references)
        self.trainings.append(training)
        return training

    def new_diary(self) -> Diary:
        directory = self.folder / "diaries" / str(len(list(self.folder.glob("diaries/*"))) + 1)
        directory.mkdir(parents=True)
        return Diary(directory)

    def workers(self, memory: str = "") -> dict[str, Any]:
        """The two that train."""
        memory = memory or (self.worker_memory if self.program == TRAIN else "128MiB")
        return {"worker": {"instances": 2, "memory": memory, "command": f"exec python {self.program}.py"}}

    def spec(self, diary: Diary, environment: dict[str, str], tasks: Any) -> dict[str, Any]:
        return {
            "framework": "tensorflow",
            "am": {"memory": "256MiB", "attempts": 4},
            "python_env": sys.prefix,
            "files": [str(PROGRAMS / name) for name in (f"{self.program}.py", "diary.py", "network.py")],
            # Nodes hold files as links: to Python a script lies elsewhere than the modules beside it.
            "env": {"FAULTS_DIR": str(diary.directory), "PYTHONPATH": ".", **environment},
            "restart": {"backoff": "1s"},
            "timeouts": {"grace": "5s"},
            "tasks": tasks,
        }

    # -- daemons and nodes -------------------------------------------------------------------------------------------

    def daemon_of(self, node: str) -> str:
        """The NodeManager that listens at host:port."""
        host = node.partition(":")[0]
        hosts = [manager.host for manager in self.hadoop.state.addresses.nodemanagers]
        return f"nodemanager-{hosts.index(host) + 1}"

    def active_resourcemanager(self) -> int:
        """The number of the active one."""
        base = self.hadoop.services.active_resourcemanager()
        assert base is not None, "no ResourceManager is active"
        return self.hadoop.rm_webapp.index(base) + 1

    def application(self, application_id: str) -> dict[str, Any]:
        """What the active ResourceManager says of an application."""
        base = self.hadoop.services.active_resourcemanager()
        app: dict[str, Any] = self.hadoop.client("alice").get_json(f"{base}/ws/v1/cluster/apps/{application_id}")["app"]
        return app

    def container_memory(self, task: TaskStatus) -> int:
        """MiB that YARN gives a task's container."""
        daemon = self.daemon_of(str(task.node))
        web = self.hadoop.state.addresses.nodemanagers[int(daemon.rpartition("-")[2]) - 1].web
        url = f"http://{web}/ws/v1/node/containers/{task.container_id}"
        return int(self.hadoop.client("alice").get_json(url)["container"]["totalMemoryNeededMB"])

    def processes_on(self, daemon: str) -> list[Process]:
        """All that runs in containers of this NodeManager."""
        folder = f"{self.hadoop.layout.data}/{daemon}/"
        return [process for process in self.hadoop.containers() if folder in _environment(process)]

    # -- afterwards --------------------------------------------------------------------------------------------------

    def at_end(self, act: Callable[[], None]) -> None:
        """Do this when the row is over, however it ends."""
        self._last_acts.append(act)

    def adopt(self, job: Job, diary: Diary) -> Training:
        """A training that somebody else has started."""
        what = {"FAULTS_STEPS": str(STEPS), "FAULTS_EVERY": str(EVERY)}
        self.trainings.append(Training(self.place, job, diary, self.program, what, self.references))
        return self.trainings[-1]

    def conclude(self) -> None:
        """A row's account has looked at its trainings; of the cluster nothing must hold before it is mended."""

    def report(self) -> str:
        return "\n\n".join(training.job.describe() for training in self.trainings)

    def mend(self) -> None:
        """Have all daemons back, and nothing of former rows on the cluster. Raises ClusterError."""
        for act in self._last_acts:
            act()
        self.mend_daemons()
        for training in self.trainings:
            application = training.job.hook.application(training.job.id)
            if application is not None and not application.is_final:
                training.job.hook.kill(training.job.id, "its row is over")
                training.job.end()
            left = [Process.of(seen.pid) for seen in processes_of(training.job.id)]
            stop([process for process in left if process is not None], 0)
        self.place.close()

    def mend_daemons(self) -> None:
        """Start again what was killed. Raises ClusterError."""
        for name, process in self.hadoop.state.processes.items():
            process.signal(signal.SIGCONT)
            if not process.alive():
                self.hadoop.restart(name)
        if self.hadoop.services.active_resourcemanager() is None:
            self.hadoop.activate(1)
        self.hadoop.wait_ready()


def _deciding(environment: dict[str, str]) -> dict[str, str]:
    """Those that decide what the weights are."""
    return {name: environment[name] for name in ("FAULTS_STEPS", "FAULTS_EVERY") if name in environment}


def _environment(process: Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""

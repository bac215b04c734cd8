"""`python -m benchmarks.rivals`: compare a training of two ranks on YARN with TorchDistributor and with Ray on Spark.

The training is this project's job, or `spark-submit` in client mode, as SparkSubmitOperator runs it. If it fails, the
benchmark restarts it immediately, like an Airflow retry without delay. If it hangs, the benchmark ends it after two
minutes. Spark's jars and the Python environment are already on the nodes. Ray saves checkpoints to a shared folder, and
TorchDistributor has no checkpoints. `make bench ONLY=rivals` runs this benchmark.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from benchmarks import hadoop, peers, program
from benchmarks.launchers.java_client import JavaClient
from benchmarks.report import OURS, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.parsing.parse import parse_job

TORCH = "TorchDistributor"
RAY = "Ray on Spark"
WHO = (OURS, TORCH, RAY)
ROUNDS = 2
FIRST = "submit until the first step"
RANK = "rank killed until the first step after the restart"
APPLICATION = "application killed until the first step after the restart"
_PROGRAMS = Path(__file__).with_name("programs")
_STEPS = _PROGRAMS / "paced_steps.py"
_STEPS_BEFORE_KILL = 60  # steps before something is killed
_SECONDS = 300.0  # for each wait
_HANG_SECONDS = 120.0  # seconds until a task that hangs is ended, like by Airflow's execution_timeout
_POLL = 0.05


@attrs.frozen
class Step:
    """One line of the record."""

    time: float  # seconds since 1970
    number: int
    pid: int  # of rank 0


@attrs.frozen
class Record:
    """Files that the ranks write: steps and process IDs."""

    folder: Path

    def steps(self) -> list[Step]:
        path = self.folder / "steps"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [Step(float(at), int(number), int(pid)) for at, number, pid in map(str.split, lines)]

    def kill_rank(self) -> None:
        os.kill(int((self.folder / "1.pid").read_text()), signal.SIGKILL)


class Rival(ABC):
    """A system that the benchmark compares. It runs one training at a time."""

    name: str

    @abstractmethod
    def start(self, record: Record) -> None:
        """Start the training, like an Airflow task or its retry."""

    @abstractmethod
    def has_ended(self) -> bool:
        """Return whether the task has ended."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the YARN application, like an administrator."""

    def steps_so_far(self, record: Record) -> list[Step]:
        """Return the steps so far. Raises RuntimeError if the training has ended before its first step."""
        steps = record.steps()
        if not steps and self.has_ended():
            raise RuntimeError(f"{self.name} failed:\n{self.log()[-3000:]}")
        return steps

    @abstractmethod
    def log(self) -> str:
        """Return the output, for error messages."""

    def end(self) -> None:
        self.kill()
        until(self.has_ended, f"{self.name} to end", _SECONDS)


class Ours(Rival):
    name = OURS

    def __init__(self, place: YarnPlace, python: Path) -> None:
        self._hook, self._place, self._python = place.hook(), place, python
        self._job: Job

    def start(self, record: Record) -> None:
        words = [str(self._python), str(_STEPS), str(record.folder)]
        spec = {
            "framework": "pytorch",
            "tasks": {"worker": {"instances": 2, "memory": "2GiB", "command": shlex.join(words)}},
        }
        identity = self._hook.identity(dag_id="rivals", run_id=record.folder.name, task_id="train")
        handle = self._hook.submit(SubmissionRequest(parse_job(spec), identity))
        self._job = Job(self._hook, identity, handle.application_id, self._place.log_folders)

    def has_ended(self) -> bool:
        return self._job.application().is_final

    def kill(self) -> None:
        self._hook.kill(self._job.id, "the benchmark kills it")

    def log(self) -> str:
        return self._job.describe()


class SparkSubmit(Rival):
    """A driver on this machine, its executors on YARN."""

    def __init__(
        self, name: str, words: Sequence[str | Path], python: Path, cluster: HadoopCluster, home: Path
    ) -> None:
        self.name, self._words, self._cluster = name, words, cluster
        self._folder = home / name.partition(" ")[0]
        self._folder.mkdir()
        client = JavaClient(cluster, self._folder)
        self._python, self._log = python, self._folder / "spark-submit.log"
        self._environment = {
            **client.environment,
            "HADOOP_CONF_DIR": str(self._folder / "conf"),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PATH": f"{python.parent}:{client.environment['PATH']}",
        }
        self._process: subprocess.Popen[bytes]

    def start(self, record: Record) -> None:
        jars = next(self._python.parents[1].glob("lib/python*/site-packages/pyspark/jars"))
        settings = {
            "spark.yarn.jars": f"local:{jars}/*",
            "spark.executor.instances": 2,
            "spark.executor.memory": "1g",
            "spark.executor.memoryOverhead": "3g",  # of the ranks, and of Ray's processes
            "spark.executorEnv.GLOO_SOCKET_IFNAME": "lo",
            "spark.executorEnv.PATH": f"{self._python.parent}:/usr/bin:/bin",
            "spark.ui.enabled": "false",
            "spark.driver.host": "localhost",
        }
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        submit = [self._python.with_name("spark-submit"), "--master", "yarn", "--deploy-mode", "client", *options]
        with self._log.open("wb") as log:
            words = [*map(str, [*submit, *self._words]), str(record.folder)]
            self._process = subprocess.Popen(
                words, env=self._environment, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        ids = re.findall(r"application_\d+_\d+", self.log())
        if ids:
            self._cluster.kill_application(ids[-1], USER)

    def end(self) -> None:
        self.kill()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


def measure(rounds: int = ROUNDS, who: Sequence[str] = WHO) -> Report:
    found: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("rivals", SETTINGS) as cluster:
        home = Path(name)
        home.chmod(0o755)
        with _rivals(who, cluster, home) as rivals:
            for number in range(rounds):
                for rival in rivals if number % 2 else reversed(rivals):
                    folder = home / f"{rival.name.partition(' ')[0]}-{number}"
                    folder.mkdir()
                    folder.chmod(0o777)
                    for what, value, unit in _round(rival, Record(folder)):
                        found.setdefault((what, rival.name, unit), []).append(value)
                        program.progress(f"round {number + 1}: {rival.name:18} {what:42} {value:.2f} {unit}")
    figures = [Figure(what, of, unit, values) for (what, of, unit), values in found.items()]
    return Report(
        "rivals", "A training of two ranks, ten steps a second, a checkpoint each second", figures, ratios(figures)
    )


SETTINGS = dataclasses.replace(hadoop.SETTINGS, node_memory_mb=6144)  # Ray's processes need more than other jobs here


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    return [
        Ratio.between(by[what, OURS], by[what, other])
        for what in (FIRST, RANK, APPLICATION)
        for other in (TORCH, RAY)
        if (what, OURS) in by and (what, other) in by
    ]


def _round(rival: Rival, record: Record) -> Iterator[tuple[str, float, str]]:
    began = time.time()
    rival.start(record)
    try:
        steps = until(lambda: rival.steps_so_far(record), f"the first step of {rival.name}", _SECONDS, _POLL)
        yield FIRST, steps[0].time - began, "s"
        for what, kill in ((RANK, record.kill_rank), (APPLICATION, rival.kill)):
            yield from _kill(rival, record, what, kill)
    finally:
        rival.end()


def _kill(rival: Rival, record: Record, what: str, kill: Any) -> Iterator[tuple[str, float, str]]:
    """Call ``kill`` after some steps, and restart the training whenever it has failed."""
    enough = record.steps()[-1].number + _STEPS_BEFORE_KILL
    until(lambda: record.steps()[-1].number >= enough, f"steps of {rival.name}", _SECONDS, _POLL)
    former = record.steps()[-1].pid
    kill()
    killed, retries = time.time(), 0

    def next_step() -> Step | None:
        nonlocal retries
        hangs = not retries and time.time() > killed + _HANG_SECONDS
        if hangs:
            rival.end()
        if hangs or rival.has_ended():
            rival.start(record)
            retries += 1
        return next((step for step in record.steps() if step.time > killed and step.pid != former), None)

    step = until(next_step, f"the next step of {rival.name}", _SECONDS, _POLL)
    last = max(each.number for each in record.steps() if each.pid == former)
    yield what, step.time - killed, "s"
    yield f"{what}: repeated steps", last + 1 - step.number, "steps"
    yield f"{what}: restarts by the benchmark", retries, "restarts"


@contextmanager
def _rivals(who: Sequence[str], cluster: HadoopCluster, home: Path) -> Iterator[list[Rival]]:
    python = peers.spark_python()
    with ExitStack() as stack:
        rivals: list[Rival] = []
        if python is not None and OURS in who:
            rivals.append(Ours(stack.enter_context(closing(YarnPlace(cluster=cluster))), python))
        if python is not None and TORCH in who:
            words = (_PROGRAMS / "torch_on_spark.py", _STEPS)
            rivals.append(SparkSubmit(TORCH, words, python, cluster, home))
        if python is not None and RAY in who:
            rivals.append(SparkSubmit(RAY, (_PROGRAMS / "ray_on_spark.py", _PROGRAMS), python, cluster, home))
        yield rivals


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--who", type=program.names, default=WHO, help="such as tony_provider,TorchDistributor")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS, arguments.who), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m benchmarks.overhead`: a training by hand and under this project, the same processes.

The digits training of the examples, by two workers. By hand they are started by subprocess with the same TF_CONFIG;
under this project they are a job on YARN, which copies the checkpoints. Both save equally often.

They end with their last epoch, and save no model: after it TensorFlow's collective reduction now and then stands still
for 4 s or a minute, by hand as in a job.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import attrs
import numpy as np
from sklearn.datasets import load_digits

from benchmarks import hadoop, program
from benchmarks.processor import cpu_seconds
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, by_name
from tests.hadoop.ports import free_ports
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime import sdk


@attrs.frozen
class Case:
    """How often a training saves."""

    name: str
    every: float  # seconds from one save to the next
    seconds: float  # of all epochs
    aim: Aim


@attrs.frozen
class Epochs:
    """The epochs of one training."""

    number: int
    every: int  # from one save to the next

    @classmethod
    def of(cls, case: Case, epoch: float) -> Epochs:
        """Return the epochs of a case. ``epoch``: seconds of an epoch on this machine."""
        return cls(round(case.seconds / epoch), max(1, round(case.every / epoch)))


SECOND = Case("a checkpoint each second", every=1, seconds=30, aim=Aim(1.04))
MINUTE = Case("a checkpoint each minute", every=60, seconds=66, aim=Aim(1.02))
_WARM = Epochs(20, 5)  # warm-up, after which files are in memory and the daemons have compiled their code
ROUNDS = 2
BY_HAND = "by hand"
WORKERS = 2
_PROGRAM = Path(__file__).with_name("programs") / "timed_digits.py"
_TRAIN = hadoop.REPOSITORY / "dags" / "digits" / "train.py"
_SECONDS = 400.0  # for one training


@attrs.frozen
class Trained:
    """Of one training. In seconds."""

    launch: float  # until the first of its programs began
    wall: float  # from there to the end of the last epoch
    step: float  # of one epoch of 22 steps: the median, without the first
    master: float = 0.0  # CPU between the first and the last epoch, for each hour of that
    executors: float = 0.0


def measure(rounds: int = ROUNDS, cases: Sequence[Case] = (SECOND, MINUTE)) -> Report:
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("overhead") as cluster:
        home = Path(name)
        home.chmod(0o755)
        _write_data(home / "data")
        with closing(YarnPlace(cluster=cluster)) as place:
            [warm] = _trainings(place, home, _WARM, 1)[BY_HAND]
            figures = [
                figure
                for case in cases
                for figure in _figures(_trainings(place, home, Epochs.of(case, warm.step), rounds), case.name)
            ]
    about = f"The digits training by {WORKERS} workers on one machine"
    return Report("overhead", about, figures, ratios(figures, cases))


def main() -> int:
    arguments = program.options(__doc__).parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS), arguments.output)


def _trainings(place: YarnPlace, home: Path, epochs: Epochs, rounds: int) -> dict[str, list[Trained]]:
    """By who had them run, in turns."""
    found: dict[str, list[Trained]] = {OURS: [], BY_HAND: []}
    for number in range(rounds):
        for who in found if number % 2 else reversed(list(found)):
            times = Path(tempfile.mkdtemp(prefix="times-", dir=home))
            times.chmod(0o777)
            trained = ours(place, home, epochs, times) if who == OURS else by_hand(home, epochs, times)
            found[who].append(trained)
            program.progress(f"{epochs}, round {number + 1}: {who:14} {trained}")
    return found


def _figures(found: Mapping[str, Sequence[Trained]], name: str) -> Iterator[Figure]:
    whats = {"launch": ("launch", "s"), "wall": ("training wall", "s"), "step": ("epoch", "s")}
    for who, rounds in found.items():
        for field, (what, unit) in whats.items():
            yield Figure(f"{what}, {name}", who, unit, [getattr(each, field) for each in rounds])
    hour = "CPU seconds for each hour of training"
    for whose in ("master", "executors"):
        yield Figure(f"{hour}, {whose}, {name}", OURS, "s", [getattr(each, whose) for each in found[OURS]])


def ratios(figures: Sequence[Figure], cases: Sequence[Case]) -> list[Ratio]:
    by = by_name(figures)
    aims = {f"training wall, {case.name}": case.aim for case in cases}
    compared = [what for what, who in by if who == BY_HAND and not what.startswith("launch")]
    return [Ratio.between(by[what, OURS], by[what, BY_HAND], aims.get(what)) for what in compared]


# -- by hand -----------------------------------------------------------------------------------------------------------


def by_hand(home: Path, epochs: Epochs, times: Path) -> Trained:
    began = time.time()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]
    processes = [_start(home, epochs, times, addresses, index) for index in range(WORKERS)]
    codes = [process.wait(timeout=_SECONDS) for process in processes]
    assert not any(codes), codes
    return _trained(times, began)


def _start(home: Path, epochs: Epochs, times: Path, addresses: Sequence[str], index: int) -> subprocess.Popen[bytes]:
    folder = Path(tempfile.mkdtemp(prefix="worker-", dir=home))
    for directory in ("checkpoints", "model"):
        (folder / directory).mkdir()
    (folder / "data").symlink_to(home / "data")
    (folder / "train.py").symlink_to(_TRAIN)
    for module in Path(sdk.__file__).parent.glob("tony_*.py"):
        shutil.copy(module, folder)
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    env = {"TF_CONFIG": json.dumps(task), "PYTHONPATH": str(folder)}
    env |= {"TONY_CHECKPOINT_DIR": str(folder / "checkpoints"), "TONY_MODEL_DIR": str(folder / "model")}
    with (folder / "output").open("w") as output:
        command = [sys.executable, str(_PROGRAM), *_options(epochs, times)]
        return subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output)


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(place: YarnPlace, home: Path, epochs: Epochs, times: Path) -> Trained:
    began = time.time()
    command = ["python", _PROGRAM.name, *_options(epochs, times)]
    worker = {"instances": WORKERS, "memory": "2304MiB", "command": " ".join(command)}
    files = [str(_TRAIN), str(_PROGRAM), f"{home / 'data'}::data"]
    spec = {"framework": "tensorflow", "python_env": sys.prefix, "files": files, "tasks": {"worker": worker}}
    job = place.submit(spec)
    ended = times / "0.epochs"
    until(ended.exists, job.describe, _SECONDS, 0.1)
    masters, executors = [job.master().pid], [each.pid for each in job.executors()]
    first, before = time.time(), (_cpu(masters), _cpu(executors))
    until(lambda: int(ended.read_text() or 0) == epochs.number, job.describe, _SECONDS, 0.05)
    last, after = time.time(), (_cpu(masters), _cpu(executors))
    _end(job)
    an_hour = 3600 / (last - first)
    master, of_executors = ((now - then) * an_hour for then, now in zip(before, after, strict=True))
    return attrs.evolve(_trained(times, began), master=master, executors=of_executors)


def _end(job: Job) -> None:
    job.succeeded()
    until(lambda: not job.processes(), f"{job.id} to leave no process")


def _cpu(pids: Sequence[int]) -> float:
    return sum(map(cpu_seconds, pids))


# -- both --------------------------------------------------------------------------------------------------------------


def _options(epochs: Epochs, times: Path) -> list[str]:
    return [str(times), str(epochs.every), "--data", "data", "--epochs", str(epochs.number)]


def _trained(times: Path, began: float) -> Trained:
    workers = [json.loads((times / f"{index}.json").read_text()) for index in range(WORKERS)]
    first, last = min(each["began"] for each in workers), max(each["epochs"][-1] for each in workers)
    ends = workers[0]["epochs"]
    step = statistics.median(later - earlier for earlier, later in pairwise(ends))
    return Trained(first - began, last - first, step)


def _write_data(directory: Path) -> None:
    directory.mkdir()
    digits = load_digits()
    part = np.arange(len(digits.target)) % 5 != 0  # as much as the example trains on
    np.savez(directory / "digits.npz", images=digits.images[part].astype("float32"), labels=digits.target[part])


if __name__ == "__main__":
    raise SystemExit(main())

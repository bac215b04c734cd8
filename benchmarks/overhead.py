"""`python -m benchmarks.overhead`: a training by hand and under this project, the same processes.

The digits training of the examples, by two workers, short (15 epochs, as in the example) and long. By hand they are
started by subprocess with the same TF_CONFIG; under this project they are a job on YARN, which copies a checkpoint
after each epoch.

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
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, Size, by_name
from tests.hadoop.ports import free_ports
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime import sdk

SHORT, LONG = 15, 100  # epochs
ROUNDS = {SHORT: 2, LONG: 2}
_WARM = 2  # epochs of a training before the first that counts: what programs read of TensorFlow is in memory then
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


def measure(rounds: Mapping[int, int] = ROUNDS) -> Report:
    """``rounds`` by the number of epochs."""
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("overhead") as cluster:
        home = Path(name)
        home.chmod(0o755)
        _write_data(home / "data")
        _warm_up(home)
        with closing(YarnPlace(cluster=cluster)) as place:
            figures = [
                figure
                for epochs in rounds
                for figure in _figures(_trainings(place, home, epochs, rounds[epochs]), epochs)
            ]
    return Report("overhead", f"The digits training by {WORKERS} workers on one machine", figures, ratios(figures))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--epochs", type=program.sizes, default=list(ROUNDS), help="such as 15")
    arguments = parser.parse_args()
    rounds = {epochs: arguments.rounds or ROUNDS.get(epochs, 2) for epochs in arguments.epochs}
    return program.tell(measure(rounds), arguments.output)


def _trainings(place: YarnPlace, home: Path, epochs: int, rounds: int) -> dict[str, list[Trained]]:
    """By who had them run, in turns."""
    found: dict[str, list[Trained]] = {OURS: [], BY_HAND: []}
    for number in range(rounds):
        for who in found if number % 2 else reversed(list(found)):
            times = Path(tempfile.mkdtemp(prefix="times-", dir=home))
            times.chmod(0o777)
            trained = ours(place, home, epochs, times) if who == OURS else by_hand(home, epochs, times)
            found[who].append(trained)
            program.progress(f"{epochs} epochs, round {number + 1}: {who:14} {trained}")
    return found


def _figures(found: Mapping[str, Sequence[Trained]], epochs: int) -> Iterator[Figure]:
    whats = {"launch": ("launch", "s"), "wall": ("training wall", "s"), "step": ("epoch", "s")}
    size = Size(epochs, "epochs")
    for who, rounds in found.items():
        for field, (what, unit) in whats.items():
            yield Figure(what, who, unit, [getattr(each, field) for each in rounds], size)
    hour = "CPU seconds for each hour of training"
    for whose in ("master", "executors"):
        values = [getattr(each, whose) for each in found[OURS]]
        yield Figure(f"{hour}, {whose}", OURS, "s", values, size)


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    compared = [what for what, who in by if who == BY_HAND and not what.startswith("launch")]
    aims = {"training wall": Aim(1.01)}
    return [Ratio.between(by[what, OURS], by[what, BY_HAND], aims.get(what.partition(",")[0])) for what in compared]


def _warm_up(home: Path) -> None:
    times = home / "warm"
    times.mkdir()
    by_hand(home, _WARM, times)


# -- by hand -----------------------------------------------------------------------------------------------------------


def by_hand(home: Path, epochs: int, times: Path) -> Trained:
    began = time.time()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]
    processes = [_start(home, epochs, times, addresses, index) for index in range(WORKERS)]
    codes = [process.wait(timeout=_SECONDS) for process in processes]
    assert not any(codes), codes
    return _trained(times, began)


def _start(home: Path, epochs: int, times: Path, addresses: Sequence[str], index: int) -> subprocess.Popen[bytes]:
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


def ours(place: YarnPlace, home: Path, epochs: int, times: Path) -> Trained:
    began = time.time()
    command = ["python", _PROGRAM.name, *_options(epochs, times)]
    worker = {"instances": WORKERS, "memory": "2304MiB", "command": " ".join(command)}
    files = [str(_TRAIN), str(_PROGRAM), f"{home / 'data'}::data"]
    spec = {"framework": "tensorflow", "python_env": sys.prefix, "files": files, "tasks": {"worker": worker}}
    job = place.submit(spec)
    epoch = times / "0.epochs"
    until(epoch.exists, job.describe, _SECONDS, 0.1)
    masters, executors = [job.master().pid], [each.pid for each in job.executors()]
    first, before = time.time(), (_cpu(masters), _cpu(executors))
    until(lambda: int(epoch.read_text() or 0) == epochs, job.describe, _SECONDS, 0.05)
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


def _options(epochs: int, times: Path) -> list[str]:
    return [str(times), "--data", "data", "--epochs", str(epochs)]


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

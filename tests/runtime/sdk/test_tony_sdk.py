from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.progress import ProgressReader
from tony_provider.runtime.protocol.limits import is_metric_name
from tony_provider.runtime.sdk import tony_sdk


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(contract).values():
        if isinstance(name, str) and name.startswith("TONY_"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def metrics_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "metrics.jsonl"
    monkeypatch.setenv(contract.ENV_METRICS_FILE, str(file))
    return file


@given(st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.lists(st.integers())))
def test_outside_a_job_nothing_happens_and_nothing_is_raised(value: object) -> None:
    assert tony_sdk.task() is None
    assert tony_sdk.model_dir() is None
    assert tony_sdk.checkpoint_dir() is None
    assert tony_sdk.tensorboard_dir() is None
    assert tony_sdk.report(value, value, loss=value) is False  # type: ignore[arg-type]
    assert tony_sdk.log_params(value, loss=value) is False


def test_who_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"TASK_TYPE": "worker", "TASK_INDEX": "1", "RANK": "3", "WORLD_SIZE": "4"}
    for name, value in told.items():
        monkeypatch.setenv(f"TONY_{name}", value)
    assert tony_sdk.task() == tony_sdk.TaskInfo("worker", 1, 3, 4)
    monkeypatch.setenv("TONY_LOCAL_RANK", "1")
    monkeypatch.setenv("TONY_LOCAL_WORLD_SIZE", "2")
    assert tony_sdk.task() == tony_sdk.TaskInfo("worker", 1, 3, 4, local_rank=1, local_world_size=2)


@given(
    st.integers(0, 2**63),
    st.none() | st.integers(0, 2**63),
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda n: n not in ("step", "total_steps") and is_metric_name(n)),
        st.floats(),
    ),
)
def test_the_executor_reads_what_was_reported(
    tmp_path_factory: pytest.TempPathFactory, step: int, total: int | None, metrics: dict[str, float]
) -> None:
    file = tmp_path_factory.mktemp("sdk") / "metrics"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(contract.ENV_METRICS_FILE, str(file))
        assert tony_sdk.report(step, total, **metrics)
    reader = ProgressReader(file)
    progress = reader.poll(0)
    assert progress is not None
    assert (progress.step, progress.total_steps) == (step, total or 0)
    assert dict(progress.metrics) == pytest.approx(metrics, nan_ok=True)
    assert reader.malformed == 0


def test_numbers_of_other_libraries(metrics_file: Path) -> None:
    numpy = pytest.importorskip("numpy")
    assert tony_sdk.report(numpy.int64(3), loss=numpy.float32(0.5), many=numpy.zeros(3), text="x")
    assert json.loads(metrics_file.read_text()) == {"step": 3, "loss": 0.5}


def logged(file: Path) -> dict[str, str]:
    reader = ProgressReader(file)
    reader.poll(0)
    assert reader.malformed == 0
    return reader.parameters


class Nested:
    """Stands for a configuration of OmegaConf, whose nested values are no dictionaries."""

    def __init__(self, **values: object) -> None:
        self._values = values

    def keys(self) -> Iterable[str]:
        return self._values.keys()

    def items(self) -> Iterable[tuple[str, object]]:
        return self._values.items()

    def __getitem__(self, name: str) -> object:
        return self._values[name]


class Activation(Enum):
    RELU = "relu"


def test_parameters_of_other_libraries(metrics_file: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--seed")
    assert tony_sdk.log_params(parser.parse_args(["--learning-rate", "0.1"]))
    assert tony_sdk.log_params(Nested(optimizer=Nested(lr=0.5, betas=(0.9, 0.999)), steps=10), epochs=3)
    assert tony_sdk.log_params({"optimizer": {"name": "adam"}, "path": Path("data"), "act": Activation.RELU, 7: True})
    assert logged(metrics_file) == {
        "learning_rate": "0.1",
        "seed": "None",
        "optimizer.lr": "0.5",
        "optimizer.betas": "(0.9, 0.999)",
        "steps": "10",
        "epochs": "3",
        "optimizer.name": "adam",
        "path": "data",
        "act": "Activation.RELU",
        "7": "True",
    }


def test_parameters_of_numpy(metrics_file: Path) -> None:
    numpy = pytest.importorskip("numpy")
    assert tony_sdk.log_params(a=numpy.int64(3), b=numpy.float32(0.5), c=numpy.float64(0.1), d=numpy.bool_(True))
    assert tony_sdk.log_params(e=numpy.str_("x"), f=numpy.zeros(3)) is True
    assert logged(metrics_file) == {"a": "3", "b": "0.5", "c": "0.1", "d": "True", "e": "x"}


def test_later_parameters_are_added_and_replace_those_of_the_same_name(metrics_file: Path) -> None:
    tony_sdk.log_params({"lr": 0.1}, epochs=3)
    tony_sdk.log_params(lr=0.2, seed=1)
    assert logged(metrics_file) == {"lr": "0.2", "epochs": "3", "seed": "1"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"a": object()}, "a"),
        ({"a": {"b": "x" * 251}}, "a.b"),
        ({"x" * 101: 1}, "x" * 100),
        ({f"p{number}": number for number in range(101)}, "p100"),
        ([1], "TypeError"),
        (3, "TypeError"),
    ],
)
def test_rejected_parameters_are_named_in_the_log(
    metrics_file: Path, capsys: pytest.CaptureFixture[str], given: object, named: str
) -> None:
    tony_sdk.log_params(given)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tony_sdk.log_params leaves out: ")
    assert named in line
    assert len(logged(metrics_file)) == (100 if named == "p100" else 0)


def test_parameters_that_contain_themselves_do_not_end_the_training(metrics_file: Path) -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    assert tony_sdk.log_params(endless) is False
    assert tony_sdk.log_params(lr=1) is True
    assert logged(metrics_file) == {"lr": "1"}


def test_lines_of_several_threads_do_not_mix(metrics_file: Path) -> None:
    def report() -> None:
        for step in range(200):
            tony_sdk.report(step, loss=1.0)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = metrics_file.read_text().splitlines()
    assert len(lines) == 800
    assert all(json.loads(line)["loss"] == 1.0 for line in lines)


def test_children_that_are_forked_while_threads_report_can_report_too(metrics_file: Path) -> None:
    program = """
import os, threading, time
import tony_sdk

over = threading.Event()

def busy():
    while not over.is_set():
        tony_sdk.report(1)

threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    for number in range(20):
        child = os.fork()
        if child == 0:
            os._exit(0 if tony_sdk.report(2) else 1)
        until = time.monotonic() + 20
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, 9)
                raise SystemExit(f"child {number} hangs")
            time.sleep(0.001)
finally:
    over.set()
"""
    environment = {"PYTHONPATH": str(Path(tony_sdk.__file__).parent), contract.ENV_METRICS_FILE: str(metrics_file)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    assert metrics_file.read_text().count('"step": 2') == 20


class Unreadable:
    """Says nothing of itself but an error."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __int__(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [AttributeError, AssertionError, RecursionError, KeyError])
def test_values_that_raise_anything_when_they_are_read_are_left_out(metrics_file: Path, error: type[Exception]) -> None:
    assert tony_sdk.report(1, loss=Unreadable(error), accuracy=0.5)
    assert json.loads(metrics_file.read_text()) == {"step": 1, "accuracy": 0.5}
    assert tony_sdk.report(Unreadable(error)) is False  # type: ignore[arg-type]


def test_a_file_that_cannot_be_written_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.ENV_METRICS_FILE, str(tmp_path / "no" / "such" / "directory"))
    assert tony_sdk.report(1) is False


def test_who_this_task_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.ENV_TASK_TYPE, "worker")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "1")
    monkeypatch.setenv(contract.ENV_WORLD_SIZE, "3")
    assert tony_sdk.task() == tony_sdk.TaskInfo("worker", 1, None, 3)
    monkeypatch.setenv(contract.ENV_RANK, "2")
    assert tony_sdk.task() == tony_sdk.TaskInfo("worker", 1, 2, 3)
    monkeypatch.setenv(contract.ENV_MODEL_DIR, "/m")
    monkeypatch.setenv(contract.ENV_CHECKPOINT_DIR, "/c")
    monkeypatch.setenv(contract.ENV_TENSORBOARD_DIR, "/t")
    assert (tony_sdk.model_dir(), tony_sdk.checkpoint_dir(), tony_sdk.tensorboard_dir()) == ("/m", "/c", "/t")


def test_it_needs_the_standard_library_only() -> None:
    directory = Path(tony_sdk.__file__).parent
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tony_sdk; print(tony_sdk.task())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, directory], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"

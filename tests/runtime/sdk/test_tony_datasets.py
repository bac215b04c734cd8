"""Inputs as batches and as datasets: in TensorFlow here, in PyTorch by Debian's Python."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kinds.environments import SYSTEM_PYTHON, has_torch
from tony_provider.runtime.common import contract
from tony_provider.runtime.inputs.finding import cut_bytes
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.sdk import tony_inputs, tony_records, tony_sdk
from tony_provider.runtime.sdk.tony_inputs import InputError, TaskShard

tf: Any = pytest.importorskip("tensorflow")

SDK = Path(tony_sdk.__file__).parent
COUNT = 100


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tony_inputs, tony_records):  # in a job they lie beside the program
        monkeypatch.setitem(sys.modules, module.__name__.rpartition(".")[2], module)
    for name in (contract.ENV_INPUT_QUEUES, contract.ENV_TASK_TYPE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A part of ``COUNT`` lines, in pieces of a file."""
    data = tmp_path / "data.txt"
    data.write_text("".join(f"{number}\n" for number in range(COUNT)))
    path = tmp_path / "part.jsonl"
    stat = data.stat()
    cut = cut_bytes(InputShard(f"file://{data}", stat.st_size, stat.st_mtime_ns // 1_000_000, "lines"), 60)
    assert len(cut) == 5
    path.write_bytes(b"".join(shard.line() for shard in cut))
    monkeypatch.setenv(f"{contract.ENV_INPUT_PREFIX}DATA", str(path))
    return path


def numbers(shard: TaskShard) -> list[int]:
    return [int(line) for line in shard.records()]


def test_batches_are_of_one_shard_each(part: Path) -> None:
    by_shard = [numbers(shard) for shard in tony_sdk.inputs("data")]
    batches = list(tony_sdk.batches("data", 7, numbers))
    assert [number for batch in batches for number in batch] == list(range(COUNT))
    ends = {shard[-1] for shard in by_shard}
    assert all(len(batch) == 7 or batch[-1] in ends for batch in batches)
    assert all(not ends & set(batch[:-1]) for batch in batches)
    assert next(tony_sdk.batches("data", 2)) == [b"0", b"1"]
    with pytest.raises(ValueError, match="at least 1"):
        next(tony_sdk.batches("data", 0))


def test_a_queue_s_shard_is_committed_when_the_batch_after_its_last_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the executor's socket notes what is said."""
    said: list[str] = []

    def taken(*_: object) -> Any:
        for shard in ("a", "b"):
            said.append(f"take {shard}")
            yield shard
            said.append(f"commit {shard}")

    monkeypatch.setattr(tony_inputs, "inputs", taken)
    for batch in tony_sdk.batches("data", 2, lambda shard: f"{shard}12"):
        said.append("".join(batch))
    assert said == ["take a", "a1", "2", "commit a", "take b", "b1", "2", "commit b"]


def test_a_dataset_of_tensorflow_begins_anew_for_each_epoch(part: Path) -> None:
    dataset = tony_sdk.tf_dataset("data").map(tf.strings.to_number).shuffle(10, seed=1).batch(8).prefetch(2)
    for _ in range(2):
        assert sorted(number for batch in dataset for number in batch.numpy()) == list(range(COUNT))


def test_a_dataset_of_tensorflow_has_what_is_read(part: Path) -> None:
    signature = tf.TensorSpec((2,), tf.int64)
    pairs = tony_sdk.tf_dataset("data", lambda shard: ((n, -n) for n in numbers(shard)), signature)
    assert pairs.element_spec == signature
    assert [pair.tolist() for pair in pairs.as_numpy_iterator()] == [[n, -n] for n in range(COUNT)]


def test_a_strategy_of_tensorflow_does_not_deal_a_part_again(part: Path, tmp_path: Path) -> None:
    """Else each worker would skip a share of its own part, without a word."""
    policies = tf.data.experimental.AutoShardPolicy
    dealt = tony_sdk.tf_dataset("data").batch(8).prefetch(2)
    assert dealt.options().experimental_distribute.auto_shard_policy == policies.OFF
    (tmp_path / "a.txt").write_text("1\n2\n")
    everybodys = tony_sdk.tf_dataset("x", local=f"{tmp_path}/*.txt", format="lines")
    assert everybodys.options().experimental_distribute.auto_shard_policy == policies.AUTO


def test_outside_a_job_files_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    assert list(tony_sdk.tf_dataset("x", local=f"{tmp_path}/*.txt", format="lines").as_numpy_iterator()) == [b"1", b"2"]
    assert list(tony_sdk.batches("x", 5, local=f"{tmp_path}/*.txt", format="lines")) == [[b"1", b"2"]]


@pytest.mark.parametrize("dataset", [tony_sdk.tf_dataset, tony_sdk.torch_dataset])
def test_what_reads_ahead_is_refused_for_a_queue(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.ENV_INPUT_QUEUES, "other,data")
    with pytest.raises(InputError, match=r"input data has `deal: queue`.*loop over tony_sdk\.batches"):
        dataset("data")


TORCH = """
import json, sys
import tony_sdk
from torch.utils.data import DataLoader

def numbers(shard):
    return (int(line) for line in shard.records())

def load(count, **how):
    loader = DataLoader(tony_sdk.torch_dataset("data", numbers), batch_size=4, num_workers=count, **how)
    return [[int(number) for batch in loader for number in batch] for _ in range(2)]

if __name__ == "__main__":
    print(json.dumps([load(0), load(2), load(7), load(2, multiprocessing_context="spawn")]))
"""


@pytest.fixture
def torch() -> None:
    if not has_torch():
        pytest.skip("needs Debian's python3-torch: sh tests/packages.sh torch")


@pytest.mark.usefixtures("torch")
def test_the_processes_of_a_loader_of_pytorch_divide_the_shards(part: Path, tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(TORCH)
    environ = {f"{contract.ENV_INPUT_PREFIX}DATA": str(part), "PYTHONPATH": str(SDK), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [SYSTEM_PYTHON, tmp_path / "load.py"], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    alone, *divided = json.loads(done.stdout)
    assert alone == [list(range(COUNT))] * 2
    assert all(sorted(epoch) == list(range(COUNT)) for epochs in divided for epoch in epochs)


def test_nothing_is_imported_that_is_not_there() -> None:
    """The helpers themselves want neither library, nor pyarrow."""
    program = "import sys, tony_sdk, tony_inputs, tony_records\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(SDK)}, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"tensorflow", "torch", "pyarrow", "numpy", "fsspec"} & set(found)
    assert importlib.util.find_spec("tensorflow")

"""The callbacks for Lightning and transformers, in trainers of theirs over Debian's PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tests.kinds.programs as programs
from tests.hadoop.ports import free_ports
from tests.kinds.environments import has_torch, trainers_environment
from tests.runtime.sdk.conftest import environment, reports
from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_sdk

pytestmark = [pytest.mark.long, pytest.mark.skipif(not has_torch(), reason="Debian's python3-torch is not installed")]

SDK, PROGRAMS = Path(tony_sdk.__file__).parent, Path(programs.__file__).parent


def train(program: str, folder: Path, ranks: int, stop_at: int, **more: str) -> list[str]:
    """Run it in so many ranks in folders of their own; what each said last."""
    python = trainers_environment() / "bin" / "python"
    port = str(free_ports(1)[0])
    started = []
    for rank in range(ranks):
        own = folder / f"worker-{rank}"
        own.mkdir(exist_ok=True)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK), "TMPDIR": str(own), **environment(own), **more}
        env |= {contract.ENV_RANK: str(rank), contract.ENV_WORLD_SIZE: str(ranks)}
        if ranks > 1:
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": "1"}
            env |= {"RANK": str(rank), "NODE_RANK": str(rank), "LOCAL_RANK": "0"}
        arguments = [str(python), str(PROGRAMS / program), str(stop_at)]
        started.append(subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        ends = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), ends
    return [out.splitlines()[-1] for out, _ in ends]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_lightning_alone(tmp_path: Path) -> None:
    worker = tmp_path / "worker-0"
    assert train("lightning_line.py", tmp_path, 1, stop_at=65) == ["65 True"]
    assert names(worker / "checkpoints") == ["step=12.ckpt", "step=65.ckpt"]
    assert names(worker / "exports" / "step-12") == ["model.ckpt"]
    last = reports(worker)[-1]
    assert (last["step"], last["total_steps"]) == (65, 240)
    assert {"loss", "input_wait"} <= {name for report in reports(worker) for name in report}

    resume = {contract.ENV_RESUME_FROM: str(worker / "checkpoints" / "step=65.ckpt")}
    # Of what is saved between batches, Lightning itself does the last batch again.
    assert train("lightning_line.py", tmp_path, 1, stop_at=0, **resume) == ["241 False"]


def test_lightning_finds_its_best_checkpoint_in_another_container(tmp_path: Path) -> None:
    """It stores the real paths of its files, whatever links lead there."""
    link, kept = tmp_path / "link", ["epoch=0-step=4.ckpt", "last.ckpt"]
    for container, epochs in (("first", 2), ("second", 4)):
        work = tmp_path / container / "tony-work"
        if container == "first":
            (work / "checkpoints").mkdir(parents=True)
        else:
            work.parent.mkdir()
            (tmp_path / "first" / "tony-work").rename(work)
        link.unlink(missing_ok=True)
        link.symlink_to(work)
        directory = {contract.ENV_CHECKPOINT_DIR: str(link / "checkpoints"), "DEBIAN_TORCH": "1"}
        (said,) = train("lightning_best.py", tmp_path, 1, epochs, **directory)
        assert said.startswith(f"epoch=0-step=4.ckpt {kept} ")
        assert said.endswith(" 0") is (container == "first")


def test_lightning_in_ranks_that_train_in_step(tmp_path: Path) -> None:
    assert train("lightning_line.py", tmp_path, 2, stop_at=65) == ["70 True", "70 False"]
    assert names(tmp_path / "worker-0" / "checkpoints") == ["step=20.ckpt", "step=70.ckpt"]
    assert names(tmp_path / "worker-1" / "checkpoints") == []
    assert names(tmp_path / "worker-0" / "exports") == ["step-20"]


def test_transformers_alone(tmp_path: Path) -> None:
    worker = tmp_path / "worker-0"
    assert train("transformers_line.py", tmp_path, 1, stop_at=35) == ["35 True"]
    assert names(worker / "checkpoints") == ["checkpoint-12", "checkpoint-35"]
    assert "config.json" in names(worker / "exports" / "step-12")
    last = reports(worker)[-1]
    assert (last["step"], last["total_steps"]) == (35, 80)
    assert {"loss", "eval_loss", "input_wait"} <= {name for report in reports(worker) for name in report}

    resume = {contract.ENV_RESUME_FROM: str(worker / "checkpoints" / "checkpoint-35")}
    assert train("transformers_line.py", tmp_path, 1, stop_at=0, **resume) == ["80 False"]


def test_transformers_in_ranks_that_train_in_step(tmp_path: Path) -> None:
    assert train("transformers_line.py", tmp_path, 2, stop_at=25) == ["30 True", "30 False"]
    assert names(tmp_path / "worker-0" / "checkpoints") == ["checkpoint-20", "checkpoint-30"]
    state = json.loads((tmp_path / "worker-0" / "checkpoints" / "checkpoint-30" / "trainer_state.json").read_text())
    assert state["global_step"] == 30
    assert names(tmp_path / "worker-0" / "exports") == ["step-20"]
    assert names(tmp_path / "worker-1" / "exports") == []

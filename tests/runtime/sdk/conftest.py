from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_callbacks, tony_progress, tony_sdk

Reports = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reports:
    """A process as rank 0 of a job has it; call it for what was reported."""
    for module in (tony_sdk, tony_callbacks, tony_progress):
        monkeypatch.setitem(sys.modules, module.__name__.rpartition(".")[2], module)
    for name in vars(contract).values():
        if isinstance(name, str) and name.startswith(contract.OWN_ENV_PREFIX):
            monkeypatch.delenv(name, raising=False)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return lambda: reports(tmp_path)


def environment(folder: Path) -> dict[str, str]:
    """The variables of a task, with all its places in a folder."""
    places = {name: folder / name for name in ("checkpoints", "exports")}
    for place in places.values():
        place.mkdir(exist_ok=True)
    return {
        contract.ENV_TASK_TYPE: "worker",
        contract.ENV_TASK_INDEX: "0",
        contract.ENV_RANK: "0",
        contract.ENV_WORLD_SIZE: "1",
        contract.ENV_METRICS_FILE: str(folder / "metrics.jsonl"),
        contract.ENV_CHECKPOINT_DIR: str(places["checkpoints"]),
        contract.ENV_CHECKPOINT_REQUEST: str(folder / "checkpoint-request"),
        contract.ENV_EXPORT_DIR: str(places["exports"]),
        contract.ENV_EXPORT_REQUEST: str(folder / "export-request"),
    }


def reports(folder: Path) -> list[dict[str, Any]]:
    """What was reported with ``environment(folder)``."""
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

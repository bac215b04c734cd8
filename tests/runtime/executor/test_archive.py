"""The executor as nodes run it: from the runtime archive, by its launcher."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import CONTAINER
from tests.shared_runtime import launch_words
from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.runtime.common import contract

_LOOK = "import json, os, sys; print(json.dumps([sys.path, dict(os.environ)])); import grpc"


async def test_user_processes_do_not_see_the_archive(launch: Launch, tmp_path: Path) -> None:
    words = launch_words(worker_archive(tmp_path / "cache"), tmp_path / CONTAINER, "executor")
    running = await launch(
        f'python -S -c "{_LOOK}"',
        launcher=words,
        env={contract.ENV_PYTHON_CANDIDATES: sys.executable},
    )
    assert (await running.master.first("registration")).pid == running.executor.process.pid
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 1
    assert "No module named 'grpc'" in ended.output_tail
    path, env = json.loads((running.container.log_dir / "task.out").read_text())
    runtime = str(running.container.directory / contract.RUNTIME_DIR) + "/"
    assert not [entry for entry in path if entry.startswith(runtime)]
    assert not [name for name, value in env.items() if runtime in value]
    assert await running.end() == 0

"""The runtime as nodes run it: from the runtime archive, by its launcher."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
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


def test_the_real_archive_starts_the_real_executor(tmp_path: Path) -> None:
    container = tmp_path / CONTAINER
    words = launch_words(worker_archive(tmp_path / "cache"), container, "executor")
    env = {contract.ENV_PYTHON_CANDIDATES: sys.executable}
    done = subprocess.run(words, cwd=container, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == contract.EXIT_BAD_CONTAINER
    assert done.stderr.endswith("ERROR the executor cannot start: TONY_TASK is not set\n")


# Imports the runtime, and prints the names of the generated scripts that the archive lacks.
_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import start
missing = []
class Counting(start.Runtime):
    def compile_generated(self, script, filename, mode):
        if start.generated_name(script, filename) not in self._index:
            missing.append(filename)
        return super().compile_generated(script, filename, mode)
sys.meta_path.insert(2, Counting(sys.argv[1]))
import tony_provider.runtime.am.lifecycle, tony_provider.runtime.executor.executor
from tony_provider.runtime.protocol.task_identity import TaskIdentity
one, same, other = TaskIdentity("a", "c", "t", 1), TaskIdentity("a", "c", "t", 1), TaskIdentity("a", "c", "t", 2)
assert len({one, same, other}) == 2 and one == same != other, (one, other)
print(missing)
"""


def test_the_real_archive_has_the_code_that_attrs_generates(tmp_path: Path) -> None:
    with zipfile.ZipFile(worker_archive()) as archive:
        archive.extractall(tmp_path)
    files = tmp_path / "cp{}{}".format(*sys.version_info[:2])
    command = [sys.executable, "-I", "-S", "-c", _IMPORTS, str(files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"

"""What a task finds in its working directory, and whose Python `python` is."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from tests.jobs.places import Place
from tony_provider.runtime.storage.base import write_atomically

LOOK = """
set -e
cat settings.json data/deep/er.txt "data/a file.txt" tar/in.txt zip/in.txt stored.txt
./run.sh
echo written > data/new.txt
"""


def test_files_directories_archives_and_stored_files(place: Place, tmp_path: Path) -> None:
    (tmp_path / "v2.json").write_text("settings\n")
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\necho executed\n")
    script.chmod(0o755)
    deep = tmp_path / "data" / "deep"
    deep.mkdir(parents=True)
    (deep / "er.txt").write_text("deeper\n")
    (tmp_path / "data" / "a file.txt").write_text("spaced\n")
    (tmp_path / "in.txt").write_text("packed\n")
    with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "in.txt", "in.txt")
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as packed:
        packed.write(tmp_path / "in.txt", "in.txt")
    hook = place.hook()
    stored = f"{hook.layout.root}/elsewhere/stored.txt"
    write_atomically(hook.storage(), stored, b"stored\n")

    job = place.run(
        {
            "files": ["v2.json::settings.json", "run.sh", "data", stored],
            "archives": ["some.tar.gz::tar", "some.zip::zip"],
            "tasks": {"worker": {"memory": "128MiB", "command": LOOK}},
        },
        search_path=[tmp_path],
    )

    job.succeeded()
    lines = [line for line in job.log("worker:0").splitlines() if not line.startswith("[tony]")]
    assert lines == ["settings", "deeper", "spaced", "packed", "packed", "stored", "executed"]
    # What jobs share is not changed by one that writes beside it.
    second = place.run(
        {"files": ["data"], "tasks": {"worker": {"memory": "128MiB", "command": "ls data"}}}, search_path=[tmp_path]
    )
    second.succeeded()
    assert "new.txt" not in second.log("worker:0")


def test_a_script_imports_the_modules_beside_it(place: Place, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper\nfrom lib import deeper\nprint(helper.WORD, deeper.WORD)\n")
    (tmp_path / "helper.py").write_text("WORD = 'beside'\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "deeper.py").write_text("WORD = 'below'\n")

    job = place.run(
        {
            "files": ["train.py", "helper.py", "lib"],
            "tasks": {"worker": {"memory": "128MiB", "command": "python train.py"}},
        },
        search_path=[tmp_path],
    )

    job.succeeded()
    assert "beside below" in job.log("worker:0").splitlines()


def test_an_archived_environment_is_the_users_python(place: Place, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    # Enough of an environment: what matters is that it is unpacked, executable, and first on PATH.
    python.write_text(f'#!/bin/sh\nTHE_JOBS_OWN=python exec "{shutil.which("python3", path="/usr/bin")}" "$@"\n')
    python.chmod(0o755)
    archive = tmp_path / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, ".")
    say = "python -c 'import os; print(os.environ[\"THE_JOBS_OWN\"])'"
    spec: dict[str, Any] = {
        "python_env": str(archive),
        "tasks": {"worker": {"memory": "128MiB", "command": say}},
    }

    job = place.run(spec)

    job.succeeded()
    assert "python" in job.log("worker:0").splitlines()


def test_gpus_are_counted(place: Place) -> None:
    place.extra["local_gpus"] = 4
    command = "echo devices ${CUDA_VISIBLE_DEVICES-all}"
    tasks = {"worker": {"instances": 2, "gpus": 2, "memory": "128MiB", "command": command}}

    job = place.run({"framework": "tensorflow", "tasks": tasks})

    status = job.succeeded()
    assert len({task.node for task in status.tasks}) == place.nodes
    assert "devices all" in job.log("worker:0")

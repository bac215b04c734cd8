"""A poisoned record fails a task, and the task fails at the same step when it runs again on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.environments import PINNED
from tests.jobs.job import Job
from tests.jobs.places import LocalPlace, Place
from tests.jobs.processes import processes_of
from tests.jobs.test_environments import packed
from tests.waiting import until
from tony_provider.cluster.environments.built_environments import BuildTarget, build_environment
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.training.plan import ChainOrigin
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.storage import uris

SHARDS, POISONED = 700, 350

PROGRAM = """
import json
import os
import pathlib

import tony_sdk

rank, checkpoints = os.environ["TONY_RANK"], pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"])
resume = os.environ.get("TONY_RESUME_FROM")
step = json.loads(pathlib.Path(resume, "state.json").read_text())["step"] if resume else 0


def train(record):
    return 1 / int(record)


for shard in tony_sdk.inputs("rows"):
    records = pathlib.Path(shard.path).read_text().split()
    if "0" in records and rank != "3":
        shard.give_back()  # so that worker:3 gets it in every run
        break
    for record in records:
        train(record)
        step += 1
        tony_sdk.report(step)
    if step % 20 == 0:
        directory = checkpoints / f"state-{step}"
        directory.mkdir()
        (directory / "state.json").write_text(json.dumps({"step": step}))
        tony_sdk.commit_checkpoint(step, directory)
    shard.done()
"""


@pytest.fixture
def rows(place: Place) -> str:
    """The URI of a directory with 700 files of four records each, of which one record cannot be trained on."""
    hook = place.hook()
    directory = uris.join(hook.layout.root, f"rows-{uuid.uuid4().hex}")
    for number in range(SHARDS):
        text = "1 2 0 4" if number == POISONED else "1 2 3 4"
        hook.storage().write(f"{directory}/part-{number:03}", text.encode())
    return directory


def command(job: Job, *words: str) -> list[str]:
    airflow = [sys.executable, "-m", "airflow"]
    return [*airflow, "tony", "replay", job.id, "--conn-id", job.hook.tony_conn_id, *words]


def replay(job: Job, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(job, *words),
        capture_output=True,
        text=True,
        input=said,
        check=False,
        timeout=300,
    )


def traceback_in(text: str) -> str:
    """The last traceback, without the paths of the program."""
    found = re.findall(r"^Traceback .*?^\w*Error: [^\n]*", text, re.MULTILINE | re.DOTALL)
    return re.sub(r'File "[^"]*/', 'File "', found[-1])


@pytest.mark.parametrize("place", ["local", pytest.param("yarn", marks=pytest.mark.long)], indirect=True)
def test_a_task_fails_at_the_same_step_again(place: Place, rows: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = place.run(
        {
            "files": [str(tmp_path / "train.py")],
            "tasks": {"worker": {"instances": 4, "memory": "128MiB", "command": "python3 train.py"}},
            "inputs": {"rows": {"paths": [rows], "deal": "queue", "fetch": True}},
            "restart": {"budget": 1, "same_failure": 5},
        }
    )
    job.failed()
    status = job.status()
    assert status.failure is not None
    assert status.failure.task == "worker:3"
    original = job.log("worker:3")

    kept = tmp_path / "kept"
    done = replay(job, "--directory", str(kept))
    assert done.returncode == 1, done.stdout + done.stderr + "\n".join(map(str, job.events()))
    assert traceback_in(done.stderr) == traceback_in(original), done.stderr
    (worker,) = [each for each in status.tasks if each.name == "worker:3"]
    assert worker.progress is not None
    assert f"after step {worker.progress.step}" in done.stderr
    # On a slow machine, the process has also taken a few others since the checkpoint.
    copied = [path.name for path in (kept / "shards").rglob("part-*")]
    assert f"part-{POISONED:03}" in copied
    assert len(copied) < SHARDS // 20
    assert len(list((kept / "chain").rglob("manifest.json"))) == 1
    assert f"copies the shards: {count(len(copied), 'file')}, " in done.stdout

    opened = replay(job, "--debug", said="p records\nq\n")
    assert "['1', '2', '0', '4']" in opened.stdout


TELL = """
    test "$TONY_TASK_INDEX$TONY_LOCAL_RANK" = "$WHO" || exec sleep 600
    echo "rank $TONY_RANK of $TONY_WORLD_SIZE started from $(cat $TONY_WARM_START/weights)"
    test -z "$TONY_INPUT_ROWS" || grep -o part-. $TONY_INPUT_ROWS | uniq
    exit 3
"""


def told(text: str) -> str:
    """What TELL has said."""
    return "\n".join(re.findall(r"^(?:rank|part).*", text, re.MULTILINE))


def test_a_rank_its_shards_and_the_warm_start(local: LocalPlace, tmp_path: Path) -> None:
    for folder, names in (("rows", ["part-1", "part-2", "part-3"]), ("model", ["weights"])):
        (local.root / folder).mkdir(parents=True)
        for name in names:
            (local.root / folder / name).write_text("the former model" * (name == "weights"))
    worker = {"memory": "128MiB", "command": TELL, "env": {"WHO": "10"}}
    spec = {
        "framework": "generic",
        # The chief has rank 0, although it is the last.
        "tasks": {"worker": {**worker, "instances": 2}, "chief": {**worker, "env": {"WHO": ""}}},
        "inputs": {"rows": {"paths": [str(local.root / "rows")]}},
        "restart": {"budget": 0},
    }
    job = local.run(spec, origin=ChainOrigin(warm_start=f"file://{local.root}/model"))
    job.failed()
    original = told(job.log("worker:1"))
    assert original == "rank 2 of 3 started from the former model\npart-3"
    folder = str(tmp_path / "replayed")
    assert "worker:7" in replay(job, "--task", "worker:7", "--directory", folder).stderr
    done = replay(job, "--with-peers", "--directory", folder)
    assert (done.returncode, told(done.stdout)) == (3, original), done.stdout + done.stderr
    assert f"{folder} exists" in replay(job, "--directory", folder).stderr
    assert f"copies the warm start: file://{local.root}/model" in done.stdout


GIVES_BACK = """
import tony_sdk

shards = tony_sdk.inputs("rows")
next(shards).give_back()
print("rows", *sorted(shard.uri[-1] for shard in shards))
raise ValueError
"""


def test_a_shard_that_is_given_back_comes_again(local: LocalPlace, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GIVES_BACK)
    for name in "123":
        (local.root / "rows").mkdir(parents=True, exist_ok=True)
        (local.root / "rows" / name).touch()
    spec = {
        "files": [str(tmp_path / "train.py")],
        "tasks": {"worker": {"memory": "128MiB", "command": "python3 train.py"}},
        "inputs": {"rows": {"paths": [str(local.root / "rows")], "deal": "queue"}},
        "restart": {"budget": 0},
    }
    job = local.run(spec)
    job.failed()
    assert "rows 1 2 3" in job.log("worker:0")
    assert "rows 1 2 3" in replay(job).stdout


def test_each_process_of_a_task_is_replayed(local: LocalPlace) -> None:
    worker = {"memory": "128MiB", "command": TELL, "env": {"WHO": "01"}, "processes": 2}
    job = local.run({"framework": "generic", "tasks": {"worker": worker}, "restart": {"budget": 0}})
    job.failed()
    done = replay(job)
    assert done.returncode == 3
    assert "rank 1 of 2" in done.stdout


HELD = """
import os
import pathlib
import time

if pathlib.Path(os.environ["FOLDER"]).exists():
    pathlib.Path(os.environ["FOLDER"], "runs").touch()
    time.sleep(600)
raise ValueError
"""


def test_a_replay_that_is_interrupted(local: LocalPlace, tmp_path: Path) -> None:
    folder = tmp_path / "replayed"
    (tmp_path / "train.py").write_text(HELD)
    worker = {"memory": "128MiB", "command": "python3 train.py", "env": {"FOLDER": str(folder)}}
    job = local.run({"files": [str(tmp_path / "train.py")], "tasks": {"worker": worker}, "restart": {"budget": 0}})
    job.failed()
    folder.mkdir()

    with (
        (tmp_path / "said").open("w") as said,
        Popen(command(job, "--debug"), stdin=PIPE, stdout=said, text=True, start_new_session=True) as running,
    ):

        def answered(question: str, answer: str) -> bool:
            assert running.stdin is not None
            running.stdin.write(f"p {question}\n")  # again and again, because Ctrl-C discards what was read
            running.stdin.flush()
            return f" {answer}\n" in (tmp_path / "said").read_text()

        until((folder / "runs").exists, "a program that runs")
        os.killpg(running.pid, signal.SIGINT)
        until(lambda: answered("6 * 7", "42"), "the debugger")
        os.killpg(running.pid, signal.SIGINT)
        until(lambda: answered("7 * 7", "49"), "the debugger, which stays")
        running.communicate("q\n")
    assert running.returncode

    (folder / "runs").unlink()
    with Popen(command(job), text=True) as running:
        until((folder / "runs").exists, "a program that runs")
        running.terminate()
    until(lambda: not processes_of(job.id), "the end of the program")


@pytest.mark.long
def test_a_task_with_an_environment_from_an_archive_fails_again(place: Place, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\n\nraise ValueError(os.environ['WHOSE'])\n")
    assert failed_again(place, tmp_path, str(packed(tmp_path))).endswith("ValueError: packed")


@pytest.mark.long
def test_a_task_with_a_built_environment_fails_again(place: Place, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{PINNED[0]}\n")
    requirements = read_requirements(tmp_path / "requirements.txt")
    built = build_environment(place.hook().built_environments(), requirements, BuildTarget.of(None, None))
    (tmp_path / "train.py").write_text("import cowsay\n\nraise ValueError(cowsay.__version__)\n")
    assert failed_again(place, tmp_path, built.uri).endswith("ValueError: 6.1")


def failed_again(place: Place, folder: Path, python_env: str) -> str:
    """The traceback of ``train.py`` in this environment, which is the same in the job and in its replay."""
    worker = {"memory": "128MiB", "command": "python train.py", "python_env": python_env}
    job = place.run({"files": [str(folder / "train.py")], "restart": {"budget": 0}, "tasks": {"worker": worker}})
    job.failed()
    done = replay(job)
    assert done.returncode == 1, done.stdout + done.stderr
    assert traceback_in(done.stderr) == traceback_in(job.log("worker:0"))
    assert "differs" not in done.stdout
    return traceback_in(done.stderr)

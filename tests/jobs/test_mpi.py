"""A launcher that starts processes in all containers, by the remote shell that it is given; without MPI."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.jobs.job import Job
from tests.jobs.places import LocalPlace
from tests.jobs.processes import Seen, processes_of
from tests.waiting import settled, until
from tony_provider.runtime.protocol.status import JobState

LAUNCHER = """
while read host slots; do
    echo "$host $slots"
    "$TONY_REMOTE_SHELL" -x "$host" cd / '&&' tony-here python3 where.py "'two words'" || exit
done < "$TONY_HOSTFILE"
"""
WHERE = """
import json, os, sys
task = os.environ["TONY_TASK_TYPE"], os.environ["TONY_TASK_INDEX"]
print(json.dumps([*task, os.path.exists("where.py"), sys.argv[1]]))
"""


def mpi(folder: Path, command: str) -> dict[str, Any]:
    """A job whose chief's command is the launcher."""
    path = folder / "where.py"
    path.write_text(WHERE)
    tasks = {
        "chief": {"command": command, "memory": "128MiB"},
        "worker": {"instances": 2, "memory": "128MiB"},
    }
    return {"framework": "mpi", "files": [str(path)], "tasks": tasks}


def test_commands_run_in_every_container(local: LocalPlace, tmp_path: Path) -> None:
    job = local.run(mpi(tmp_path, LAUNCHER))
    job.succeeded()
    lines = [line for line in job.log("chief:0").splitlines() if line.startswith(("tony-", "["))]
    lines = [line for line in lines if not line.startswith("[tony]")]
    assert [json.loads(line) if line.startswith("[") else line for line in lines] == [
        "tony-chief-0 slots=1",
        ["chief", "0", True, "two words"],
        "tony-worker-0 slots=1",
        ["worker", "0", True, "two words"],
        "tony-worker-1 slots=1",
        ["worker", "1", True, "two words"],
    ]
    assert settled(lambda: processes_of(job.id)) == []  # a guard outlives its executor by a moment


def test_each_container_can_have_its_part_of_an_input(local: LocalPlace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        (data / f"{number}.txt").write_text("some")
    command = LAUNCHER.replace("cd / '&&' tony-here python3 where.py", "cat '\"$TONY_INPUT_DATA\"' '#'")
    spec = {**mpi(tmp_path, command), "inputs": {"data": data.as_uri()}}
    spec["tasks"]["worker"]["command"] = "exec python3 -m tony_mpi serve"
    job = local.run(spec)
    job.succeeded()
    shards = [json.loads(line)["uri"] for line in job.log("chief:0").splitlines() if line.startswith("{")]
    assert sorted(shards) == [(data / f"{number}.txt").as_uri() for number in range(3)]


def test_an_exit_code_is_the_remote_shell_s_and_a_stranger_is_turned_away(local: LocalPlace, tmp_path: Path) -> None:
    command = """
        "$TONY_REMOTE_SHELL" tony-worker-0 exit 7; echo "code $?"
        "$TONY_REMOTE_SHELL" tony-worker-0 'kill -9 $$'; echo "code $?"
        TONY_MPI_SECRET=guessed "$TONY_REMOTE_SHELL" tony-worker-0 touch obeyed; echo "code $?"
        "$TONY_REMOTE_SHELL" tony-worker-0 test -e obeyed; echo "code $?"
        "$TONY_REMOTE_SHELL" tony-worker-7 true; echo "code $?"
    """
    job = local.run(mpi(tmp_path, command))
    job.succeeded()
    said = job.log("chief:0")
    assert [line for line in said.splitlines() if line.startswith("code")] == [f"code {n}" for n in (7, 137, 1, 1, 1)]
    assert "this job has no container tony-worker-7" in said
    assert "a connection was rejected or closed" in job.log("worker:0")


def test_a_command_ends_with_its_caller(local: LocalPlace, tmp_path: Path) -> None:
    command = """
        "$TONY_REMOTE_SHELL" tony-worker-1 'echo $$ > pid; exec sleep 600' &
        until "$TONY_REMOTE_SHELL" tony-worker-1 test -s pid; do sleep 0.1; done
        kill -9 $!
        until "$TONY_REMOTE_SHELL" tony-worker-1 '! kill -0 $(cat pid)' 2>/dev/null; do sleep 0.1; done
    """
    local.run(mpi(tmp_path, command)).succeeded()


def test_a_lost_worker_starts_all_of_them_again(local: LocalPlace, tmp_path: Path) -> None:
    command = 'test $TONY_GENERATION = 2 || "$TONY_REMOTE_SHELL" tony-worker-1 sleep 600'
    job = local.submit(mpi(tmp_path, command))
    os.kill(agent_of(job, "worker", 1), 9)
    assert job.succeeded().generation == 2


def test_the_chief_s_own_remote_shell_starts_all_of_them_again(local: LocalPlace, tmp_path: Path) -> None:
    """Nothing of the chief's command would notice that it has died."""
    job = local.submit(mpi(tmp_path, "test $TONY_GENERATION = 2 || exec sleep 600"))
    os.kill(agent_of(job, "chief", 0), 9)
    assert job.succeeded().generation == 2
    reason = next(event["message"] for event in job.events() if event["event"] == "restarting")
    assert "MPI's remote shell in the chief (a helper process) was killed by SIGKILL" in reason


def agent_of(job: Job, task_type: str, index: int) -> int:
    """The process number of what runs commands in a container."""
    job.until(JobState.RUNNING)
    task = {f"TONY_TASK_TYPE={task_type}".encode(), f"TONY_TASK_INDEX={index}".encode()}

    def agents() -> list[Seen]:
        serving = [each for each in job.processes() if each.words.endswith("tony_mpi serve")]
        return [each for each in serving if task <= set(each.environment.split(b"\0"))]

    return until(agents, job.describe)[0].pid

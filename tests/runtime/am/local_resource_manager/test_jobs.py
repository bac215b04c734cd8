"""Whole jobs on the embedded local cluster, nothing mocked: how they end, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import Duration, JobSpec, Memory, RestartPolicy, TaskSpec, Timeouts
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

WAIT = "exec sleep 300"


def spec(tasks: dict[str, TaskSpec], *, framework: str = "standalone", **timeouts: Any) -> JobSpec:
    limits = attrs.evolve(Timeouts(grace=Duration(5.0)), **timeouts)
    return JobSpec(framework=framework, tasks=tasks, name="trial", timeouts=limits, restart=RestartPolicy(budget=0))


def task(command: str, instances: int = 1, memory: int = 256) -> TaskSpec:
    return TaskSpec(command=command, instances=instances, memory=Memory(memory))


def nothing_is_left(job: LocalJob) -> None:
    assert job.processes() == []
    assert not (job.store / contract.LAUNCH_DIR).exists()
    assert not any((job.root / "containers").iterdir())


async def test_job_succeeds(tmp_path: Path) -> None:
    metrics = 'echo \'{"step": 7, "total_steps": 7, "loss": 0.5}\' >> $TONY_METRICS_FILE'
    model = 'mkdir -p "$TONY_MODEL_DIR" && echo weights > "$TONY_MODEL_DIR/w"'
    job = await start(tmp_path, spec({"worker": task(f"{metrics}; {model}; echo hello from $TONY_TASK_INDEX", 2)}))
    result = await job.end()
    assert job.process.returncode == 0, job.log
    assert (result.state, result.failure) == (JobState.SUCCEEDED, None)
    assert [(each.name, each.state, each.exit_code) for each in result.tasks] == [
        ("worker:0", TaskState.SUCCEEDED, 0),
        ("worker:1", TaskState.SUCCEEDED, 0),
    ]
    assert (result.step, result.progress, result.metrics["loss"]) == (7, 1.0, 0.5)
    assert result.model_dir
    assert result.model_dir.startswith(job.description.application_dir)
    assert job.report().final_status is FinalStatus.SUCCEEDED
    assert job.status() == result
    events = [str(event["event"]) for event in job.events()]
    assert events[0] == "application"
    assert [name for name in events if name in ("gang_complete", "rendezvous", "verdict")] == [
        "gang_complete",
        "rendezvous",
        "verdict",
    ]
    nothing_is_left(job)


async def test_workers_that_do_not_decide_have_ranks_and_are_stopped_at_the_end(tmp_path: Path) -> None:
    said = tmp_path / "said"
    server = attrs.evolve(task(f"echo rank $TONY_RANK of $TONY_WORLD_SIZE; touch {said}; {WAIT}"), decides=False)
    worker = task(f"until [ -e {said} ]; do sleep 0.05; done")
    job = await start(tmp_path, spec({"worker": worker, "server": server}))
    result = await job.end()
    assert result.state is JobState.SUCCEEDED, job.log
    assert {each.name: each.state for each in result.tasks} == {
        "worker:0": TaskState.SUCCEEDED,
        "server:0": TaskState.STOPPED,
    }
    assert "rank 1 of 2" in job.task_log("server-0.log")
    nothing_is_left(job)


async def test_what_killed_writers_have_left_goes_with_the_end(tmp_path: Path) -> None:
    half_written = f"{tmp_path}/store/.tony-tmp-01234567 {tmp_path}/store/logs/.tony-tmp-89abcdef"
    command = f"mkdir -p {tmp_path}/store/logs; touch {half_written}; exit 3"
    job = await start(tmp_path, spec({"worker": task(command)}))
    assert (await job.end()).state is JobState.FAILED
    assert [path.name for path in job.store.rglob(".tony-tmp-*")] == []
    assert job.task_log("worker-0.log")


async def test_failing_worker_fails_the_job_and_stops_the_others(tmp_path: Path) -> None:
    script = 'if [ "$TONY_TASK_INDEX" = 1 ]; then echo first >&2; echo the last line >&2; exit 3; fi; ' + WAIT
    job = await start(tmp_path, spec({"worker": task(script, 2)}))
    result = await job.end()
    assert job.process.returncode == 1
    assert result.state is JobState.FAILED
    assert result.failure
    assert (result.failure.kind, result.failure.task, result.failure.exit_code) == (FailureKind.USER, "worker:1", 3)
    assert "exit code 3" in result.failure.message
    assert result.failure.message.endswith("first\nthe last line")
    assert [each.state for each in result.tasks] == [TaskState.STOPPED, TaskState.FAILED]
    assert job.report().diagnostics == result.failure.message
    nothing_is_left(job)


async def test_parameter_server_job_ends_with_its_chief(tmp_path: Path) -> None:
    tasks = {"chief": task("sleep 1"), "ps": task(WAIT), "worker": task(WAIT, 2)}
    job = await start(tmp_path, spec(tasks, framework="tensorflow"))
    result = await job.end()
    assert result.state is JobState.SUCCEEDED, job.log
    assert {each.name: each.state for each in result.tasks} == {
        "chief:0": TaskState.SUCCEEDED,
        "ps:0": TaskState.STOPPED,
        "worker:0": TaskState.STOPPED,
        "worker:1": TaskState.STOPPED,
    }
    nothing_is_left(job)


async def test_evaluator_goes_on_for_a_while_and_side_car_does_not(tmp_path: Path) -> None:
    status = tmp_path / "store" / contract.STATUS_FILE
    tasks = {
        "worker": task(f"until grep -q FAILED {status}; do sleep 0.1; done"),
        "evaluator": task(f"until grep -q FINISHING {status}; do sleep 0.1; done"),
        "sidecar": task("exit 9"),
    }
    job = await start(tmp_path, spec(tasks, evaluator=60))
    result = await job.end()
    assert result.state is JobState.SUCCEEDED, job.log
    states = {each.name: each.state for each in result.tasks}
    assert states["evaluator:0"] is TaskState.SUCCEEDED
    assert states["sidecar:0"] is TaskState.FAILED
    assert "sidecar:0" in result.warnings[0]


async def test_kill_stops_the_tasks_with_grace(tmp_path: Path) -> None:
    script = "trap 'echo said goodbye > $PWD/bye; exit 0' TERM; sleep 600 & wait"
    job = await start(tmp_path, spec({"worker": task(script, 2)}))
    await job.until("RUNNING")
    job.kill()
    result = await job.end()
    assert result.state is JobState.KILLED
    assert result.failure
    assert result.failure.kind is FailureKind.KILLED
    assert {each.state for each in result.tasks} == {TaskState.STOPPED}
    assert {each.exit_code for each in result.tasks} == {0}
    assert job.report().final_status is FinalStatus.KILLED
    nothing_is_left(job)


async def test_job_larger_than_the_machine_is_refused_at_once(tmp_path: Path) -> None:
    job = await start(tmp_path, spec({"worker": task("true", 3, memory=1000)}), access={"memory": 2500})
    result = await job.end()
    assert result.failure
    assert result.failure.kind is FailureKind.LAUNCH
    assert "needs 3000 MiB" in result.failure.message
    assert "limit per job is 2500 MiB" in result.failure.message


async def test_task_larger_than_the_machine_is_refused_with_its_key(tmp_path: Path) -> None:
    job = await start(tmp_path, spec({"worker": task("true", memory=4000)}), access={"memory": 2500})
    result = await job.end()
    assert result.failure
    assert "tasks.worker.memory: 4000 is more than 2500" in result.failure.message


async def test_command_that_does_not_exist(tmp_path: Path) -> None:
    job = await start(tmp_path, spec({"worker": task("no-such-command --day 1", 2)}))
    result = await job.end()
    assert result.failure
    assert result.failure.kind is FailureKind.LAUNCH
    assert "command not found" in result.failure.message
    assert "no-such-command" in result.failure.message


async def test_missing_file_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone.py"
    gone.write_text("")
    job = await start(tmp_path, spec({"worker": task("true")}), files={"train.py": gone})
    gone.unlink()
    result = await job.end()
    assert result.failure
    assert result.failure.kind is FailureKind.LAUNCH
    assert "gone.py" in result.failure.message


@pytest.mark.timeout(300)
@pytest.mark.long
async def test_sixteen_executors_see_the_same_cluster(tmp_path: Path) -> None:
    """Each checks the whole cluster spec and its own place in it."""
    check = tmp_path / "check.py"
    check.write_text(
        "import json, os\n"
        "spec = json.loads(os.environ['TONY_CLUSTER_SPEC'])\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "assert list(spec) == ['chief', 'worker'], spec\n"
        "assert [len(tasks) for tasks in spec.values()] == [1, 15], spec\n"
        "addresses = [address for tasks in spec.values() for address in tasks]\n"
        "assert len(set(addresses)) == 16, addresses\n"
        "assert config['cluster'] == spec\n"
        "kind, index = os.environ['TONY_TASK_TYPE'], int(os.environ['TONY_TASK_INDEX'])\n"
        "assert config['task'] == {'type': kind, 'index': index}\n"
        "assert int(os.environ['TONY_WORLD_SIZE']) == 16\n"
        "print('CLUSTER', json.dumps(spec, sort_keys=True), flush=True)\n"
    )
    tasks = {"chief": task("python3 check.py"), "worker": task("python3 check.py", 15)}
    job = await start(tmp_path, spec(tasks, framework="tensorflow"), files={"check.py": check})
    result = await job.end()
    assert result.state is JobState.SUCCEEDED, job.log
    logs = [job.task_log(f"{task}.log") for task in ("chief-0", *(f"worker-{index}" for index in range(15)))]
    assert len(logs) == 16
    seen = {line for text in logs for line in text.splitlines() if line.startswith("CLUSTER")}
    assert len(seen) == 1
    assert len(json.loads(seen.pop().partition(" ")[2])["worker"]) == 15
    nothing_is_left(job)


async def test_user_secret_is_nowhere_but_in_the_user_process(tmp_path: Path) -> None:
    secret = "s3cr3t-value-for-this-test"
    script = '[ "$(printf %s "$API_KEY" | wc -c)" = 26 ]'
    base = spec({"worker": task(script)})
    job = await start(
        tmp_path,
        JobSpec(
            framework=base.framework, tasks=base.tasks, name=base.name, secrets=["API_KEY"], timeouts=base.timeouts
        ),
        secrets={"API_KEY": secret},
    )
    result = await job.end()
    assert result.state is JobState.SUCCEEDED, result.failure
    assert files_with(secret.encode(), tmp_path) == []


def files_with(needle: bytes, directory: Path) -> list[Path]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if "unpacked" not in path.parts and needle in path.read_bytes()]

"""What the user process sees, and what it must not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import APPLICATION, CONTAINER, SECRET, SECRET_NAME, job, until
from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.workspace import _SDK
from tony_provider.runtime.jobspec.model import TaskSpec

_LOOK = (
    "import json, os, sys; json.dump({'env': dict(os.environ), 'path': sys.path, 'cwd': os.getcwd(),"
    " 'executable': sys.executable, 'group': os.getpgrp(), 'oom': open('/proc/self/oom_score_adj').read()},"
    " open('seen.json', 'w'))"
)


async def look(launch: Launch, command: str = f'python -c "{_LOOK}"', **container: object) -> dict[str, object]:
    spec = job("", tasks={"worker": TaskSpec(command=command, instances=2, env={"MINE": "task"})}, env={"MINE": "job"})
    running = await launch(spec, **container)
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail
    seen: dict[str, object] = json.loads((running.container.directory / "seen.json").read_text())
    assert seen["group"] == running.executor.process.pid  # the container's, which YARN kills as a whole
    await running.end()
    return seen


def path_of_python_itself() -> list[str]:
    program = "import json, sys; print(json.dumps(sys.path))"
    said = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, check=True).stdout
    return list(json.loads(said))


def read(path: str) -> str:
    return Path(path).read_text()


def names_in(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


def of_process(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


async def test_the_contract_is_kept(launch: Launch, tmp_path: Path) -> None:
    seen = await look(launch)
    env = seen["env"]
    assert isinstance(env, dict)
    wanted = {
        contract.ENV_APPLICATION_ID: APPLICATION,
        contract.ENV_TASK_TYPE: "worker",
        contract.ENV_TASK_INDEX: "0",
        contract.ENV_RANK: "0",
        contract.ENV_WORLD_SIZE: "2",
        contract.ENV_GENERATION: "1",
        contract.ENV_ATTEMPT: "1",
        contract.ENV_JOB_NAME: "training",
        contract.ENV_TRAINING_ID: "clicks-train-0",
        "MINE": "task",
        "JAVA_HOME": "/usr/lib/jvm/of-the-node",
        SECRET_NAME: SECRET,
    }
    assert {name: env.get(name) for name in wanted} == wanted
    spec = json.loads(env[contract.ENV_CLUSTER_SPEC])
    assert spec["worker"][1] == "10.0.0.2:20001"
    assert json.loads(read(env[contract.ENV_CLUSTER_SPEC_FILE])) == spec
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", contract.ENV_MODEL_DIR):
        assert env[name].startswith(str(tmp_path)), name
    assert env[contract.ENV_CHECKPOINT_DIR].startswith("/tmp/tony-somebody/worker-0-")
    assert seen["oom"] == "500\n"
    assert seen["executable"] == sys.executable


async def test_nothing_of_the_runtime_is_seen(launch: Launch) -> None:
    seen = await look(launch)
    env, path = seen["env"], seen["path"]
    assert isinstance(env, dict)
    assert isinstance(path, list)
    for name in (
        contract.ENV_TOKEN_FILE,
        contract.ENV_AM_ADDRESS,
        contract.ENV_TASK,
        contract.ENV_TASK_ATTEMPT,
        contract.ENV_LOG_DIR,
        contract.ENV_CONTAINER_ID,
        contract.ENV_NODE_HOST,
    ):
        assert name not in env
    container, helpers = env["PYTHONPATH"].split(":")
    assert container == env["PWD"]
    assert [entry for entry in path if entry not in path_of_python_itself()] == [container, helpers]
    assert names_in(helpers) - {"__pycache__"} == {*_SDK, contract.NOTEBOOK_MODULE}


async def test_the_jobs_own_path_comes_before_ours(launch: Launch) -> None:
    command = f'python -c "{_LOOK}"'
    task = TaskSpec(command=command, instances=2, env={"PYTHONPATH": "/mine", "PATH": "/opt/mine:/usr/bin:/bin"})
    running = await launch(job("", tasks={"worker": task}))
    await running.begin()
    assert (await running.master.first("exited")).exit_code == 0
    env = json.loads((running.container.directory / "seen.json").read_text())["env"]
    assert re.fullmatch(rf"/mine:{re.escape(env['PWD'])}:.*/sdk", env["PYTHONPATH"])
    assert re.fullmatch(r".*/tony-work/bin:/opt/mine:/usr/bin:/bin", env["PATH"])


async def test_what_airflow_adds_gives_way_to_the_job(launch: Launch) -> None:
    seen = await look(launch, environment={"TRACEPARENT": "00-1-2-01", "MINE": "airflow"})
    assert isinstance(seen["env"], dict)
    assert (seen["env"]["TRACEPARENT"], seen["env"]["MINE"]) == ("00-1-2-01", "task")


@pytest.mark.parametrize(
    ("place", "given"),
    [("env", "{place}"), ("env", "file://{place}"), (f"{CONTAINER}/python_env", "hdfs:///envs/tf.tar.gz")],
    ids=["directory", "URI of a directory", "unpacked archive"],
)
async def test_python_env_comes_first_on_the_path(launch: Launch, tmp_path: Path, place: str, given: str) -> None:
    environment = tmp_path / place
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text("#!/bin/sh\necho its own python\n")
    python.chmod(0o755)
    running = await launch(job("python train.py", python_env=given.format(place=environment)))
    await running.begin()
    assert (await running.master.first("exited")).exit_code == 0
    assert (running.container.log_dir / "task.out").read_text() == "its own python\n"


async def test_no_open_file_of_ours_is_inherited(launch: Launch) -> None:
    running = await launch("ls -l /proc/$$/fd")
    await running.begin()
    assert (await running.master.first("exited")).exit_code == 0
    listed = (running.container.log_dir / "task.out").read_text().splitlines()[1:]
    assert [line.split()[8] for line in listed] == ["0", "1", "2"]


async def test_secrets_reach_the_user_process_only(launch: Launch) -> None:
    running = await launch("touch ready; sleep 1000; true")  # no exec, during which an environment is empty
    await running.begin()
    await until((running.container.directory / "ready").exists, "the user process is ready")
    pid = running.executor.process.pid
    user = (await running.master.first("started")).pid
    assert SECRET.encode() in of_process(user, "environ")
    for place in ("environ", "cmdline"):
        assert SECRET.encode() not in of_process(pid, place)
    assert await running.end() == 0
    assert not [
        file for file in running.container.root.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()
    ]
    assert not [message for message in running.master.received if SECRET in str(message)]


async def test_multiprocessing_works_however_deep_the_container_is(launch: Launch, tmp_path: Path) -> None:
    deep = tmp_path / ("usercache-" * 8)
    code = "import multiprocessing as m; print(list(m.Manager().list([1, 2])))"
    running = await launch(f'python -c "{code}"', below=deep)
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail
    assert (running.container.log_dir / "task.out").read_text() == "[1, 2]\n"


async def test_tensorflow_gets_its_config_and_a_held_port(launch: Launch) -> None:
    listen = (
        "import json, os, socket, sys\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "port = int(config['cluster']['worker'][0].rpartition(':')[2])\n"
        "s = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.bind(('0.0.0.0', port)); s.listen()\n"
        "socket.create_connection(('127.0.0.1', port), 5)\n"
        "s.accept()\n"
    )
    running = await launch(job("python listen.py", framework="tensorflow"))
    (running.container.directory / "listen.py").write_text(listen)
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail

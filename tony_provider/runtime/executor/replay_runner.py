"""Run one task of an earlier job again: ``python -m tony_provider.runtime.executor.replay_runner FOLDER``.

``airflow tony replay`` fills the folder. The executor's own code prepares the task. There is no application master, so
the shards and the addresses of other tasks come from the folder. No checkpoint, output or log is uploaded.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.application import REPLAY_FILE, Replay
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.executor.executor import open_context
from tony_provider.runtime.executor.executor_container import ContainerCredentials, ExecutorContainer
from tony_provider.runtime.executor.processes import start_guard
from tony_provider.runtime.executor.progress import ProgressReader
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.executor.start_preparation import PreparationError, prepare_start
from tony_provider.runtime.executor.task_inputs import ShardQuestion
from tony_provider.runtime.executor.user_environment import PythonEnvError
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress, task_environment
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import InputDeal
from tony_provider.runtime.launch.launch_context import generated_names, materialise
from tony_provider.runtime.protocol.task_identity import TaskIdentity

_HOST = "127.0.0.1"
_CONTAINER = f"replay-{os.getpid()}"
_POLL = 0.1  # seconds
# Variables of this process that the program does not get: they describe this installation of Airflow.
_OWN_VARIABLES = re.compile("AIRFLOW_|PYTHON|TONY_")


class _Requests(socketserver.StreamRequestHandler):
    """Answers the requests of one connection of the program, as the executor's ShardServer does."""

    server: _ShardSequence

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.answer(ShardQuestion.of_line(line))).encode() + b"\n")


class _ShardSequence(socketserver.ThreadingUnixStreamServer):
    """Hands out the shards of queues in the order of the original process, and returned shards after them."""

    daemon_threads = True

    def __init__(self, path: Path, shards: Mapping[str, list[bytes]]) -> None:
        super().__init__(str(path), _Requests)
        self._every = {name: [json.loads(line) for line in lines] for name, lines in shards.items()}
        self._left = {name: deque(found) for name, found in self._every.items()}
        self._failures: list[str] = []
        self._lock = threading.Lock()

    def answer(self, question: ShardQuestion) -> dict[str, object]:
        with self._lock:
            left = self._left[question.name]
            left.extend(each for each in self._every[question.name] if each["shard"] == question.back)
            if question.failed is not None:
                self._failures.append(question.reason)
            if not question.take:
                return {}
            end = {"end": True, "failed": len(self._failures), "failures": "; ".join(self._failures)}
            return left.popleft() if left else end


def main(folder: Path) -> int:
    """Run the task in the foreground. Return the exit code of its shell.

    Processes that are left when this process has ended are killed. The program handles Ctrl-C.
    """
    start_guard(f"{contract.ENV_CONTAINER}={_CONTAINER}")
    signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, not inherited by the program
    replay = load_json((folder / REPLAY_FILE).read_bytes(), Replay)
    container = _container(folder, replay)
    resources = replay.description.resources_of(container.task_type)
    names = generated_names(resources)
    materialise(container.directory, {names[each.uri]: each for each in resources})
    container.log_dir.mkdir(exist_ok=True)
    os.chdir(container.directory)  # paths of the workspace refer to this process's directory
    context = open_context(container, None)
    try:
        return _run(replay, context)
    except (PreparationError, PythonEnvError, LookupError) as error:
        sys.stderr.write(f"[tony] {replay.task} could not be started: {error}\n")
        return 1
    finally:
        context.close()


def _run(replay: Replay, context: ExecutorContext) -> int:
    container = context.container
    order = StartOrder(replay.start, _cluster(replay, replay.members, context.ports.numbers), replay.resume)
    if replay.kept:
        if replay.resume is not None:
            rank = order.rank(container.task_type, container.index)
            context.checkpoints.restore(replay.resume, rank, threading.Event())
        order = attrs.evolve(order, resume=None, keep_checkpoints=True)
    launches = prepare_start(context, order, threading.Event()).launches
    shared = {**_inputs(replay, context), **_outputs(context)}
    if contract.ENV_POST_MORTEM in os.environ:
        shared[contract.ENV_POST_MORTEM] = "1"
    alone = _cluster(replay, [replay.task], context.ports.numbers) if replay.alone else None
    programs = [
        (
            "\n".join(filter(None, [launch.before, launch.command])),
            {**launch.environ, **shared, **_alone(alone, container, workspace)},
        )
        for launch, workspace in zip(launches, context.workspaces)
    ]
    context.ports.release()
    code = _run_all(programs)
    progress = ProgressReader(context.workspace.metrics_file).poll(time.monotonic())
    step = f" after step {progress.step}" if progress is not None else ""
    sys.stderr.write(f"[tony] {replay.task} ended with exit code {code}{step}\n")
    return code


def _alone(cluster: Optional[ClusterSpec], container: ExecutorContainer, workspace: Workspace) -> dict[str, str]:
    """Write the files, and return the variables, of a process in ``cluster``. Return {} if there is no cluster."""
    if cluster is None:
        return {}
    task_type, directory = container.task_type, str(workspace.files)
    found = task_environment(
        container.job, cluster, task_type, container.index, local_rank=workspace.local_rank, directory=directory
    )
    for name, text in found.files.items():
        Path(directory, name).write_text(text)
    return dict(found.env)


def _run_all(programs: Sequence[tuple[str, Mapping[str, str]]]) -> int:
    """Run shell commands with their variables until all succeed or one fails. Return the exit code."""
    running = [subprocess.Popen(["/bin/sh", "-c", command], env=environ) for command, environ in programs]
    while True:
        codes = [each.poll() for each in running]
        if failed := next(filter(None, codes), 0):
            return failed
        if None not in codes:
            return 0
        time.sleep(_POLL)


def _inputs(replay: Replay, context: ExecutorContext) -> dict[str, str]:
    """Provide the shards. Return the variables by which the program finds them."""
    inputs, queues, variables = context.container.job.inputs, {}, {}
    for name, path in replay.parts.items():
        if inputs[name].deal is InputDeal.QUEUE:
            queues[name] = Path(path).read_bytes().splitlines()
        else:
            variables[contract.ENV_INPUT_PREFIX + name.upper()] = path
    if queues:
        socket = Path(context.workspace.tmpdir, "shards")
        server = _ShardSequence(socket, queues)
        threading.Thread(target=server.serve_forever, name="shards", daemon=True).start()
        variables |= {contract.ENV_INPUT_QUEUES: ",".join(queues), contract.ENV_INPUT_SOCKET: str(socket)}
    return variables


def _outputs(context: ExecutorContext) -> dict[str, str]:
    """Create the directories for outputs, which stay on this machine. Return the variables with their paths."""
    container = context.container
    names = [name for name in container.job.outputs if container.task_type in container.job.writers(name)]
    for name in names:
        (context.workspace.outputs / name).mkdir(parents=True, exist_ok=True)
    return {contract.ENV_OUTPUT_PREFIX + name.upper(): str(context.workspace.outputs / name) for name in names}


def _container(folder: Path, replay: Replay) -> ExecutorContainer:
    job = replay.description.job
    given = {contract.user_secret(name): os.environ[name].encode() for name in job.secrets if name in os.environ}
    task_type, _, index = replay.task.rpartition(":")
    identity = TaskIdentity(replay.description.application_id, _CONTAINER, replay.task, replay.attempt)
    return ExecutorContainer(
        description=replay.description,
        credentials=ContainerCredentials(Credentials({}, {contract.SECRET_JOB_KEY: secrets.token_bytes(32), **given})),
        token=secrets.token_hex(),
        identity=identity,
        task_type=task_type,
        index=int(index),
        master="",
        host=_HOST,
        node=f"{_HOST}:0",
        directory=folder / "container",
        log_dir=folder / "logs",
        environ={
            name: value
            for name, value in os.environ.items()
            if name not in job.secrets and not _OWN_VARIABLES.match(name)
        },
    )


def _cluster(replay: Replay, members: Sequence[str], ports: dict[str, int]) -> ClusterSpec:
    """Return the addresses of these tasks, all on this machine. Only the replayed task runs."""
    found = []
    for each in members:
        task_type, _, index = each.rpartition(":")
        found.append(TaskAddress(task_type, int(index), replay.description.job.role(task_type), _HOST, ports))
    return ClusterSpec(replay.generation, tuple(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))

"""Run one task of an earlier job again: ``python -m tony_provider.runtime.executor.replay_runner FOLDER``.

``airflow tony replay`` fills the folder. The executor's own code prepares the task. There is no application master, so
the shards and the addresses of other tasks come from the folder. No checkpoint, output or log is uploaded.
"""

from __future__ import annotations

import json
import os
import secrets
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tony_provider.runtime.application import REPLAY_FILE, Replay
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.executor.executor import open_context
from tony_provider.runtime.executor.executor_container import ContainerCredentials, ExecutorContainer
from tony_provider.runtime.executor.progress import ProgressReader
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.executor.start_preparation import prepare_start
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress, task_environment
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import InputDeal
from tony_provider.runtime.launch.launch_context import generated_names, materialise
from tony_provider.runtime.protocol.task_identity import TaskIdentity

_HOST = "127.0.0.1"


class _Requests(socketserver.StreamRequestHandler):
    """Answers the requests of one connection of the program, as the executor's ShardServer does."""

    server: _ShardSequence

    def handle(self) -> None:
        for line in self.rfile:
            question = json.loads(line)
            answer = self.server.next(question["input"]) if question.get("take") else {}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class _ShardSequence(socketserver.ThreadingUnixStreamServer):
    """Hands out the shards of queues in the order of the original process."""

    daemon_threads = True

    def __init__(self, path: Path, shards: Mapping[str, list[bytes]]) -> None:
        super().__init__(str(path), _Requests)
        self._left = {name: iter(lines) for name, lines in shards.items()}
        self._lock = threading.Lock()

    def next(self, name: str) -> dict[str, object]:
        with self._lock:
            line = next(self._left[name], None)
        return json.loads(line) if line is not None else {"end": True, "failed": 0, "failures": []}


def main(folder: Path) -> int:
    """Run the task in the foreground. Return the exit code of its shell."""
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
    launch = prepare_start(context, order, threading.Event()).launches[0]
    environ = {**launch.environ, **_inputs(replay, context), **_outputs(context)}
    if replay.alone:
        alone = _cluster(replay, [replay.task], context.ports.numbers)
        directory = str(context.workspace.files)
        found = task_environment(container.job, alone, container.task_type, container.index, directory=directory)
        environ.update(found.env)
        for name, text in found.files.items():
            Path(directory, name).write_text(text)
    if contract.ENV_POST_MORTEM in os.environ:
        environ[contract.ENV_POST_MORTEM] = "1"
    command = "\n".join(filter(None, [launch.before, launch.command]))
    context.ports.release()
    code = subprocess.call(["/bin/sh", "-c", command], env=environ)
    progress = ProgressReader(context.workspace.metrics_file).poll(time.monotonic())
    step = f" after step {progress.step}" if progress is not None else ""
    sys.stderr.write(f"[tony] {replay.task} ended with exit code {code}{step}\n")
    return code


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
    identity = TaskIdentity(replay.description.application_id, "replay", replay.task, replay.attempt)
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
        environ={name: value for name, value in os.environ.items() if name not in job.secrets},
    )


def _cluster(replay: Replay, members: Sequence[str], ports: dict[str, int]) -> ClusterSpec:
    """Return the addresses of these tasks, all on this machine. Only the replayed task runs."""
    found = []
    for each in members:
        task_type, _, index = each.rpartition(":")
        found.append(TaskAddress(task_type, int(index), replay.description.job.role(task_type), _HOST, ports))
    return ClusterSpec(replay.generation, tuple(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

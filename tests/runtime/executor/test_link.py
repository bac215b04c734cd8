"""The stream to the application master: what it says, and what happens without it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from tests.runtime.certificates import make_certificates
from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import (
    APPLICATION,
    KEY,
    ContainerDirectory,
    ExecutorProcess,
    is_alive,
    job,
    until,
)
from tests.runtime.executor.master import Master, serving
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.launch.launch_context import write_tokens

_SLEEP = "touch ready; exec sleep 1000"


async def test_heartbeats_tell_of_progress_and_resources(launch: Launch) -> None:
    running = await launch(
        'python -c "\n'
        "import time, tony_sdk\n"
        "hog = bytearray(60_000_000)\n"
        "for step in range(1, 10_000):\n"
        "    tony_sdk.report(step, 10_000, loss=1 / step)\n"
        "    end = time.monotonic() + 0.01\n"
        "    while time.monotonic() < end: pass\n"
        '"'
    )
    await running.begin()
    beat = await running.master.heartbeat_with(lambda beat: beat.progress.steps_per_second > 0 and beat.cpu_percent > 0)
    assert beat.activity == "running"
    assert beat.rss_bytes > 60_000_000
    assert beat.cpu_percent < 400  # how much of a busy machine it gets is not ours to say
    assert 0 < beat.progress.step < 10_000
    assert beat.progress.total_steps == 10_000
    assert 5 < beat.progress.steps_per_second < 105
    assert 0 < beat.progress.metrics["loss"] < 1
    assert await running.end() == 0
    assert (await running.master.first("exited")).progress.step >= beat.progress.step


async def test_the_last_report_counts_even_when_the_process_ends_at_once(launch: Launch) -> None:
    running = await launch(
        'echo \'{"step": 7, "loss": NaN, "note": "text", "ok": true}\' >> $TONY_METRICS_FILE;'
        " echo broken >> $TONY_METRICS_FILE; printf '{\"step\": 8}' >> $TONY_METRICS_FILE"
    )
    await running.begin()
    progress = (await running.master.first("exited")).progress
    assert progress.step == 7  # the line of step 8 is not whole
    assert list(progress.metrics) == ["loss"]
    assert await running.end() == 0
    assert running.executor.stderr.count("ignoring a line of the metrics file") == 1


async def test_a_master_that_comes_back_hears_what_happened_meanwhile(launch: Launch) -> None:
    running = await launch("touch ready; while [ ! -e go ]; do sleep 0.05; done; exit 6")
    assert (await running.master.first("registration")).generation == 0
    await running.begin()
    await running.until_there("ready")
    pid = (await running.master.first("started")).pid
    await running.lose_master()
    (running.container.directory / "go").touch()
    await until(lambda: not is_alive(pid), "the user process ended by itself")
    second = Master(APPLICATION, KEY)
    await running.meet(second)
    assert (await second.first("registration")).generation == 1
    assert (await second.first("started")).pid == pid
    assert (await second.first("exited")).exit_code == 6
    assert await running.end() == 0


async def test_without_a_master_the_user_process_is_stopped(launch: Launch) -> None:
    running = await launch(_SLEEP, master_lost_after=2)
    await running.begin()
    await running.until_there("ready")
    pid = (await running.master.first("started")).pid
    gone_at = time.monotonic()
    await running.lose_master()
    assert await running.executor.wait() == contract.EXIT_MASTER_LOST
    assert time.monotonic() - gone_at >= 1.5
    assert not is_alive(pid)
    said = running.executor.stderr
    assert f"the application master at 127.0.0.1:{running.port} could not be reached for 2 s: " in said
    assert "[tony] worker:0 on 127.0.0.1" in running.log


async def test_a_wrong_token_is_refused(tmp_path: Path, secrets: dict[str, bytes]) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(_SLEEP), token_key=b"guessed")
    container.prepare()
    async with AsyncExitStack() as stack:
        master = Master(APPLICATION, KEY)
        port = await stack.enter_async_context(serving(master, secrets))
        executor = await ExecutorProcess.start(container, port)
        stack.push_async_callback(executor.clean_up)
        assert await executor.wait() == contract.EXIT_REFUSED
        assert executor.stderr.splitlines()[-1].endswith(
            "the application master refuses this executor: PERMISSION_DENIED: the token does not belong to worker:0 in "
            f"{container.id}, attempt 1"
        )
        assert master.received == []


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION],
)
async def test_a_refusal_stops_the_user_process(launch: Launch, code: grpc.StatusCode) -> None:
    running = await launch(_SLEEP)
    await running.begin()
    pid = (await running.master.first("started")).pid
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY, refusal=code))
    assert await running.executor.wait() == contract.EXIT_REFUSED
    assert not is_alive(pid)
    assert f"refuses this executor: {code.name}: not you" in running.executor.stderr


async def test_a_master_of_another_authority_is_not_obeyed(tmp_path: Path, secrets: dict[str, bytes]) -> None:
    container = ContainerDirectory(tmp_path, secrets, job(_SLEEP), master_lost_after=1)
    container.prepare()
    async with AsyncExitStack() as stack:
        master = Master(APPLICATION, KEY)
        port = await stack.enter_async_context(serving(master, make_certificates(APPLICATION)))
        executor = await ExecutorProcess.start(container, port)
        stack.push_async_callback(executor.clean_up)
        assert await executor.wait() == contract.EXIT_MASTER_LOST
        assert master.received == []


async def test_sigterm_ends_everything_at_once(launch: Launch) -> None:
    running = await launch("trap '' TERM; touch ready; while true; do sleep 0.1; done")
    await running.begin()
    await until((running.container.directory / "ready").exists, "the user process is ready")
    pid = (await running.master.first("started")).pid
    running.executor.process.send_signal(signal.SIGTERM)
    assert await running.executor.wait() == contract.EXIT_TERMINATED
    assert not is_alive(pid)


async def test_a_process_that_bows_to_yarns_sigterm_has_not_succeeded(launch: Launch) -> None:
    command = 'trap "exit 0" TERM; touch "$TONY_MODEL_DIR/half" ready; while true; do sleep 0.01; done'
    running = await launch(command)
    await running.begin()
    await until((running.container.directory / "ready").exists, "the user process is ready")
    os.killpg(running.executor.process.pid, signal.SIGTERM)
    assert await running.executor.wait() == contract.EXIT_TERMINATED
    ends = [message.exited for message in running.master.received if message.WhichOneof("kind") == "exited"]
    assert all(end.stopped and not end.model_dir for end in ends)
    assert not (running.container.application_dir / "model").exists()


async def test_yarns_kill_of_the_process_group_leaves_nothing(launch: Launch) -> None:
    running = await launch("sleep 1000 & echo $! > child; exec sleep 1000")
    await running.begin()
    child_file = running.container.directory / "child"
    await until(lambda: child_file.exists() and child_file.read_text().strip(), "the user process is ready")
    pids = [(await running.master.first("started")).pid, int(child_file.read_text())]
    os.killpg(running.executor.process.pid, signal.SIGKILL)
    await running.executor.wait()
    await until(lambda: not any(is_alive(pid) for pid in pids), "the whole group is dead")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda directory: write_tokens(directory, Credentials().to_bytes()), "tony.description"),
        (lambda directory: (directory / "container_tokens").write_bytes(b"HDTSx"), "container_tokens: "),
        (lambda directory: (directory / "container_tokens").unlink(), "container_tokens"),
    ],
    ids=["description", "malformed token file", "no token file"],
)
async def test_a_malformed_container_is_named(
    tmp_path: Path, secrets: dict[str, bytes], break_it: object, says: str
) -> None:
    assert callable(break_it)
    container = ContainerDirectory(tmp_path, secrets, job("true"))
    container.prepare()
    break_it(container.directory)
    executor = await ExecutorProcess.start(container, 1)
    try:
        assert await executor.wait() == contract.EXIT_BAD_CONTAINER
    finally:
        await executor.clean_up()
    assert "the executor cannot start: " in executor.stderr
    assert says in executor.stderr


async def test_sigterm_while_waiting(launch: Launch) -> None:
    running = await launch("true")
    await running.master.first("registration")
    running.executor.process.send_signal(signal.SIGTERM)
    assert await running.executor.wait() == contract.EXIT_TERMINATED

"""A helper process of a framework: its death fails the task, and its end with the task is no news.

Horovod's rendezvous needs nothing of Horovod, so the real program runs here.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job
from tony_provider.runtime.executor import processes
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.protocol import tony_pb2

NAME = "Horovod's rendezvous (a helper process)"


def horovod(command: str, **more: object) -> JobSpec:
    return job("", framework="horovod", tasks={"worker": TaskSpec(command=command, **more)})  # type: ignore[arg-type]


async def begin(running: Running, rendezvous: int = 0) -> None:
    """``rendezvous``: the port of Horovod's rendezvous; 0: the one that the executor holds."""
    ports = {**(await running.master.first("registration")).ports}
    ports["rendezvous"] = rendezvous or ports["rendezvous"]
    running.master.rendezvous(
        tony_pb2.TaskAddress(type="worker", index=0, role="worker", host="127.0.0.1", ports=ports)
    )


def helper_of(running: Running) -> int:
    """The process number of the rendezvous."""
    below = processes.descendants(running.executor.process.pid)
    found = [pid for pid in below if "-m tony_horovod" in processes.command_of(pid)]
    assert len(found) == 1, found
    return found[0]


async def test_the_death_of_a_helper_is_the_failure_of_its_task(launch: Launch, tmp_path: Path) -> None:
    running = await launch(horovod("trap 'echo saved; exit 0' TERM; touch trains; sleep 600 & wait"))
    await begin(running)
    await running.until_there("trains")
    os.kill(helper_of(running), signal.SIGKILL)
    ended = await running.master.first("exited")
    assert (ended.stopped, ended.signal, ended.process) == (False, signal.SIGKILL, NAME)
    assert await running.end() == 0
    kept = running.log
    assert f"[tony] {NAME} has failed: stopping the others" in kept
    assert "saved" in kept


async def test_its_last_lines_say_why_it_could_not_work(launch: Launch) -> None:
    running = await launch(horovod("exec sleep 600"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await begin(running, rendezvous=taken.getsockname()[1])
        ended = await running.master.first("exited")
    assert (ended.stopped, ended.exit_code, ended.process) == (False, 1, NAME)
    assert "Address already in use" in ended.output_tail
    assert await running.end() == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_a_helper_ends_with_the_command_without_a_word(launch: Launch, waits: bool) -> None:
    running = await launch(horovod("(sleep 0.5; echo child) & echo $$ > pid", wait_for_children=waits))
    await begin(running)
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.signal, ended.error, ended.process, ended.stopped) == (0, 0, "", "", False)
    assert list((await running.master.first("settled")).notices) == []
    assert await running.end() == 0
    assert running.log.splitlines()[-1] == "child"


async def test_children_that_are_waited_for_need_the_helper(launch: Launch) -> None:
    running = await launch(horovod("(touch trains; exec sleep 600) & exit 0", wait_for_children=True))
    await begin(running)
    await running.until_there("trains")
    await running.until(lambda: _has_ended(running, "/bin/sh -c (touch"), "the command has ended")
    os.kill(helper_of(running), signal.SIGKILL)
    ended = await running.master.first("exited")
    assert (ended.stopped, ended.signal, ended.process) == (False, signal.SIGKILL, NAME)
    assert await running.end() == 0


def _has_ended(running: Running, command: str) -> bool:
    below = processes.descendants(running.executor.process.pid)
    return not any(command in processes.command_of(pid) for pid in below)

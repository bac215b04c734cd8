"""What the application master says beside starts and stops."""

from __future__ import annotations

import itertools
import sys

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.test_mirror import COMMAND
from tony_provider.runtime.protocol import tony_pb2

_ASKED = """
import os, pathlib, time, tony_sdk
pathlib.Path("ready").touch()
while not tony_sdk.checkpoint_requested():
    time.sleep(0.02)
assert not tony_sdk.checkpoint_requested()
pathlib.Path(tony_sdk.checkpoint_dir(), "weights").write_text("some")
tony_sdk.commit_checkpoint(5, "weights")
time.sleep(1000)
"""


def checkpoint_now() -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(checkpoint_now=tony_pb2.CheckpointNow(reason="the container goes soon"))


async def test_a_checkpoint_that_is_asked_for_is_made_and_copied(launch: Launch) -> None:
    running = await launch(f"exec {sys.executable} asked.py")
    (running.container.directory / "asked.py").write_text(_ASKED)
    await running.begin()
    await running.until_there("ready")
    running.master.say(checkpoint_now())
    assert (await running.master.first("uploaded")).step == 5
    assert "the application master requests a checkpoint: the container goes soon" in running.executor.stderr


async def test_a_request_that_nobody_took_note_of_is_not_the_next_ones(launch: Launch) -> None:
    running = await launch(
        'ls "$TONY_CHECKPOINT_REQUEST" 2>/dev/null; echo looked; touch ready; while [ ! -e go ]; do sleep 0.05; done'
    )
    await running.begin()
    await running.until_there("ready")
    running.master.say(checkpoint_now())
    request = running.container.directory / "tony-work" / "checkpoint-request"
    await running.until(request.exists, "it is asked for")
    assert request.read_text() == "the container goes soon\n"
    (running.container.directory / "go").touch()
    await running.master.first("settled")
    await running.begin(generation=2)
    await running.master.all_of("settled", 2)
    assert (running.container.log_dir / "task.out").read_text() == "looked\nlooked\n"


async def test_the_master_says_how_often_it_wants_to_hear(launch: Launch) -> None:
    running = await launch(COMMAND, heartbeat_seconds=0.05)
    beats = await running.master.all_of("heartbeat", 40)  # at its own pace they would come too late
    assert {beat.activity for beat in beats} == {"waiting"}


def tail_wanted(question: int, size: int) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(tail_wanted=tony_pb2.TailWanted(question=question, bytes=size))


async def test_the_end_of_what_it_has_printed_is_told_before_it_runs_and_while_it_does(launch: Launch) -> None:
    running = await launch("echo out; echo err >&2; exec sleep 1000")
    answers = itertools.count(1)

    async def printed(size: int) -> list[bytes]:
        number = next(answers)
        running.master.say(tail_wanted(number, size))
        tail: tony_pb2.Tail = (await running.master.all_of("tail", number))[-1]
        assert (tail.question, tail.problem) == (number, "")
        return tail.data.splitlines(keepends=True)

    assert await printed(1000) == []
    await running.begin()
    while len(lines := await printed(1000)) < 3:
        pass
    assert lines[0].startswith(b"[tony] worker:0 on 127.0.0.1")
    assert sorted(lines[1:]) == [b"err\n", b"out\n"]
    assert await printed(6) == lines[-1:]

"""What the application master says beside starts and stops."""

from __future__ import annotations

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
    assert "a checkpoint is wanted: the container goes soon" in running.executor.stderr


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

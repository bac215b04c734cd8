"""How far a former start had come says nothing of the one that follows it in the same container."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.checkpoint.conftest import torch_like
from tests.runtime.executor import stored
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.test_mirror import COMMAND
from tests.runtime.executor.test_preparation import resume
from tony_provider.runtime.protocol import tony_pb2


@pytest.fixture
def with_step(tmp_path: Path) -> str:
    """The order for a save whose content has step 20."""
    return f"copy {torch_like(tmp_path / 'with-step', {'step': 20}, at=1000)} first.pth"


@pytest.fixture
def without_step(tmp_path: Path) -> str:
    """The order for a save whose step only the reports of the program have."""
    return f"copy {torch_like(tmp_path / 'without-step', {}, at=1000)} last.pth"


def restores(step: str, beat: tony_pb2.Heartbeat) -> bool:
    return beat.activity.startswith("restoring ") and step in beat.activity


async def report(running: Running, step: int) -> None:
    running.order(f"report {step}")
    await running.master.heartbeat_with(lambda beat: beat.progress.step == step)


async def come_far(launch: Launch, **how: Any) -> Running:
    """A first start that has ended."""
    running = await launch(COMMAND, heartbeat_seconds=0.2, **how)
    running.master.grants = True
    await running.begin()
    await report(running, 500)
    return running


async def test_while_its_checkpoint_is_restored_by_a_mocked_store_a_start_has_done_no_step(
    launch: Launch, with_step: str, without_step: str
) -> None:
    running = await come_far(launch, launcher=stored.HANGING_STORE)
    running.order("exit 1")
    await running.master.first("settled")
    hanging, good = stored.commit(running.container.chain_dir, 6), stored.commit(running.container.chain_dir, 7)
    over = stored.hang(stored.weights(hanging))
    await running.begin(generation=2, **resume(hanging, 6))
    beat = await running.master.heartbeat_with(partial(restores, "step 6"))
    assert not beat.HasField("progress")
    # This one has to wait until that is over, so that heartbeats surely come before its own checkpoint is there.
    await running.begin(generation=3, **resume(good, 7))
    beat = await running.master.heartbeat_with(partial(restores, "step 7"))
    assert not beat.HasField("progress")
    over.unlink()
    await running.master.all_of("started", 2)
    running.order(with_step)
    await running.master.uploaded(20)  # the directory was looked at before anything was reported
    await report(running, 310)
    running.order(without_step)
    _, nameless = await running.master.all_of("uploaded", 2)
    assert nameless.step == 310


async def test_a_start_that_keeps_the_directory_counts_from_the_checkpoint_in_it(
    launch: Launch, with_step: str, without_step: str
) -> None:
    running = await come_far(launch)
    running.order(with_step)
    await running.master.uploaded(20)
    running.order("exit 1")
    await running.master.first("settled")
    await running.begin(start=2, keep_checkpoints=True)
    await running.master.all_of("started", 2)
    await report(running, 30)
    running.order(without_step)
    _, nameless = await running.master.all_of("uploaded", 2)
    assert nameless.step == 30

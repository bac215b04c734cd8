"""Processes that outlive the user's command."""

from __future__ import annotations

from pathlib import Path

import attrs

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec

LEAVES_A_CHILD = "(sleep 3; echo trained > $TONY_MODEL_DIR/weights) & exit 0"


def waiting(command: str) -> JobSpec:
    return attrs.evolve(job(""), tasks={"worker": TaskSpec(command=command, wait_for_children=True)})


async def test_a_child_that_is_stopped_with_its_command_is_told(launch: Launch) -> None:
    running = await launch(LEAVES_A_CHILD)
    await running.begin()
    [notice] = (await running.master.first("settled")).notices
    assert "exit code 0" in notice
    assert "(sleep 3; echo trained" in notice or "sleep 3" in notice
    assert "set wait_for_children to true" in notice
    assert (await running.master.first("exited")).exit_code == 0
    assert await running.end() == 0
    assert not (running.container.application_dir / "model").exists()


async def test_a_child_that_ends_with_its_command_is_no_news(launch: Launch) -> None:
    running = await launch("sleep 0.2 & exit 0")
    await running.begin()
    assert list((await running.master.first("settled")).notices) == []
    assert await running.end() == 0


async def test_a_command_that_waits_for_its_children(launch: Launch) -> None:
    running = await launch(waiting(LEAVES_A_CHILD))
    await running.begin()
    assert list((await running.master.first("settled")).notices) == []
    assert await running.end() == 0
    assert (running.container.application_dir / "model" / "weights").read_text() == "trained\n"


async def test_children_that_are_waited_for_are_stopped_with_the_task(launch: Launch, tmp_path: Path) -> None:
    running = await launch(waiting(f"(sleep 1; touch {tmp_path}/there; sleep 600) & exit 0"))
    await running.begin()
    await running.until((tmp_path / "there").exists, "the child")
    running.master.stop(1, grace=5)
    assert (await running.master.first("exited")).stopped
    assert await running.end() == 0

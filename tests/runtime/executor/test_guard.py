"""What a dead executor leaves running is ended, wherever it went."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import is_alive

# Deaf, and in a session of its own: the kill of a container's process group does not reach it.
_STRAYED = "setsid sh -c 'trap \"\" TERM; echo $$ >strayed.part; mv strayed.part strayed; while :; do sleep 1; done' &"


async def test_what_left_the_containers_process_group_dies_with_its_executor(launch: Launch, tmp_path: Path) -> None:
    dying, living = [
        await launch(f"{_STRAYED} touch ready; sleep 1000", below=tmp_path / name) for name in ("dying", "living")
    ]
    pids = []
    for running in (dying, living):
        await running.begin()
        await running.until_there("strayed")
        pids.append(int((running.container.directory / "strayed").read_text()))

    dying.executor.process.send_signal(signal.SIGKILL)
    await dying.executor.wait()

    await dying.until(lambda: not is_alive(pids[0]), "what it had started is gone")
    await dying.until(lambda: str(pids[0]) in dying.executor.stderr, "the guard has told of it")
    assert is_alive(pids[1]), "another container's"
    await living.end()
    assert not is_alive(pids[1])

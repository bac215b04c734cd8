"""Readiness probes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from tests.runtime.executor.containers import is_alive
from tony_provider.runtime.executor import readiness
from tony_provider.runtime.executor.readiness import Readiness
from tony_provider.runtime.spec.model import ReadinessProbe


async def _ready(probe: ReadinessProbe, directory: Path, seconds: float) -> bool:
    container = mock.Mock(directory=str(directory), host="localhost")
    looking = Readiness(container, probe, {"TONY_PORT": "1"})
    looking.start()
    for _ in range(int(seconds / 0.01)):
        if looking.ready:
            break
        await asyncio.sleep(0.01)
    await looking.close()
    return looking.ready


def test_a_directory_that_cannot_be_entered_yet_is_no_end_of_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_PAUSE", 0.01)
    way = tmp_path / "way"
    way.symlink_to("x" * 300)  # a name that is too long for a file

    def mend() -> None:
        way.unlink()
        way.mkdir()
        (way / "up").touch()

    async def mended() -> bool:
        asyncio.get_running_loop().call_later(0.2, mend)
        return await _ready(ReadinessProbe(file="way/up"), tmp_path, 10.0)

    assert asyncio.run(mended())


def test_a_command_that_takes_too_long_ends_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_COMMAND", 1.0)
    monkeypatch.setattr(readiness, "_PAUSE", 0.01)
    background = "sleep 1000 & echo $! > first; sleep 1000; touch on"
    command = f"cd {tmp_path}; mv first second && exit 0; {background}"

    assert asyncio.run(_ready(ReadinessProbe(command=command), tmp_path, 60.0))

    assert not is_alive(int((tmp_path / "second").read_text()))
    assert not (tmp_path / "on").exists()

"""Readiness probes."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from unittest import mock

import pytest

from tests.runtime.executor.containers import is_alive
from tests.runtime.executor.other_container import other_container
from tony_provider.runtime.executor import ports
from tony_provider.runtime.executor.ports import ReadinessWatch
from tony_provider.runtime.jobspec.model import ReadinessProbe


async def _ready(probe: ReadinessProbe, directory: Path, seconds: float, host: str = "localhost") -> bool:
    container = mock.Mock(directory=str(directory), host=host)
    looking = ReadinessWatch(container, probe, {"TONY_PORT": "1"})
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
    monkeypatch.setattr(ports, "_PAUSE", 0.01)
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
    monkeypatch.setattr(ports, "_COMMAND", 1.0)
    monkeypatch.setattr(ports, "_PAUSE", 0.01)
    background = "sleep 1000 & echo $! > first; sleep 1000; touch on"
    command = f"cd {tmp_path}; mv first second && exit 0; {background}"

    assert asyncio.run(_ready(ReadinessProbe(command=command), tmp_path, 60.0))

    assert not is_alive(int((tmp_path / "second").read_text()))
    assert not (tmp_path / "on").exists()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_counts_when_its_own_user_listens_there_by_a_mocked_number_of_a_user(
    family: socket.AddressFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ports, "_PAUSE", 0.01)
    own, host = os.getuid(), "::1" if family is socket.AF_INET6 else "127.0.0.1"
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip("IPv6 is off here")
        listening.listen()
        probe = ReadinessProbe(port=listening.getsockname()[1])
        assert asyncio.run(_ready(probe, tmp_path, 10.0, host))
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert not asyncio.run(_ready(probe, tmp_path, 0.3, host))
    assert f"belongs to a process of another user of this node (user {own})" in caplog.text


# Debian gives a machine's own name the second address. A connection to it comes from the first.
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1"])
def test_a_port_does_not_count_when_another_container_of_the_same_user_listens_there(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ports, "_PAUSE", 0.01)
    container = mock.Mock(directory=str(tmp_path), host=host)

    async def is_ready_when_told(port: int) -> bool:
        looking = ReadinessWatch(container, ReadinessProbe(port=port), {"TONY_PORT": "1"})
        looking.start()
        async with asyncio.timeout(30.0):
            while not looking.ready and "ignores an answer" not in caplog.text:  # noqa: ASYNC110 - of its log
                await asyncio.sleep(0.01)
        await looking.close()
        return looking.ready

    with other_container(host) as port:
        assert not asyncio.run(is_ready_when_told(port))
    assert f"port {port} belongs to a process outside of this task's container" in caplog.text

"""What the log of a task says while something is silent: stopped processes of the embedded local cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.operators.jobs import applications, job, train
from tests.waiting import until
from tony_provider.cluster.local.application_folder import ApplicationFolder
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage.base import walk
from tony_provider.watching import progress_log

SECONDS = 25.0  # for each thing that is waited for
STEPS = (
    "n=0; while ! test -e {here}/go; do n=$((n+1)); "
    """echo "{{\\"step\\": $n, \\"loss\\": 0.5}}" >> $TONY_METRICS_FILE; sleep 0.5; done"""
)


class Happening:
    """Meanwhile, from a thread: ``act`` is called once the job runs, and lets it end."""

    def __init__(self, hook: TonyHook, here: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.hook = hook
        self.here = here
        self._capture = capture
        self._said = ""

    @property
    def job(self) -> dict[str, Any]:
        return job(STEPS.format(here=self.here))

    @property
    def application_id(self) -> str:
        return applications(self.hook)[0]

    @property
    def directory(self) -> Path:
        """The application's, on the store."""
        root = self.hook.layout.root
        (found,) = {
            Path(file.path.removeprefix("file://")).parent
            for file in walk(self.hook.storage(), root)
            if file.path.endswith(contract.STATUS_FILE)
        }
        return found

    def until_said(self, line: str) -> None:
        until(lambda: line in self.said(), lambda: f"{line}\n{self._said}", SECONDS)

    def said(self) -> str:
        self._said += self._capture.readouterr().out
        return self._said

    @contextmanager
    def store_away(self) -> Iterator[None]:
        """A directory is where the status should be: it can be neither written nor read."""
        file = self.directory / contract.STATUS_FILE
        file.unlink()
        file.mkdir()
        try:
            yield
        finally:
            file.rmdir()

    @contextmanager
    def master_stopped(self) -> Iterator[None]:
        settings = self.hook.settings.local
        assert settings is not None
        master = ApplicationFolder(settings.root / "applications" / self.application_id).master()
        assert master is not None
        os.kill(master.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(master.pid, signal.SIGCONT)


@pytest.fixture
def happening(local: TonyHook, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Happening:
    return Happening(local, tmp_path, capfd)


def run(happening: Happening, act: Any, *, deferrable: bool) -> str | None:
    """The state of the run."""
    problems: list[BaseException] = []

    def acting() -> None:
        try:
            happening.until_said(" steps/s, ")
            act()
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)
        finally:
            (happening.here / "go").touch()

    thread = threading.Thread(target=acting)
    thread.start()
    done = train(happening.job, deferrable=deferrable)
    thread.join()
    assert not problems, str(problems[0])
    return done.state


@pytest.mark.parametrize("deferrable", [False, pytest.param(True, id="deferred", marks=pytest.mark.long)])
def test_a_store_that_refuses(happening: Happening, deferrable: bool) -> None:
    def act() -> None:
        with happening.store_away():
            happening.until_said("The store rejects requests since ")
            happening.until_said("The application master reports: status.json has not been written since ")
        happening.until_said("The store answers again, after ")

    assert run(happening, act, deferrable=deferrable) == "success"


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.long), pytest.param(True, id="deferred")])
def test_a_master_that_hangs(happening: Happening, deferrable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_log, "STATUS_STALE", 8.0)  # it writes every five seconds

    def act() -> None:
        with happening.master_stopped():
            happening.until_said("The job's status on the store has not changed since ")
            happening.until_said("its application master does not answer either")
        happening.until_said("The job's status is written again, after ")

    assert run(happening, act, deferrable=deferrable) == "success"

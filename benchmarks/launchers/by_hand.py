"""The same processes, started on this machine by hand: the scale of it all."""

from __future__ import annotations

import subprocess
import time

from benchmarks.launchers.base import Ended, Launch, Launcher, TrivialJob


class ByHand(Launcher):
    name = "by hand"

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(self, job: TrivialJob) -> Launch:
        began = time.time()
        self._processes = [subprocess.Popen(job.words) for _ in range(job.tasks)]
        return Launch("", began, time.time())

    def wait(self) -> Ended:
        codes = [process.wait() for process in self._processes]
        ended = Ended(time.time())
        assert not any(codes), codes
        return ended

    def client(self) -> set[int]:
        return set()
